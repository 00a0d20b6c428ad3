"""The logins that docs/kubernetes.md makes, as it makes them: each tries every function and table
there is.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from redrive.database.schema.migrate import migrate
from tests.postgres import Server

pytestmark = pytest.mark.every_version

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
ROLES_PAGE = (ROOT / "docs" / "roles.md").read_text()
MATRIX = (Path(__file__).parent / "privileges.txt").read_text()

Connection = psycopg.Connection[tuple[Any, ...]]

FUNCTIONS = """
    select p.oid::regprocedure::text,
        'select redrive.' || p.proname || '(' || array_to_string(array(
        select 'null::' || format_type(t, null)
        from unnest(p.proargtypes::oid[]) with ordinality as a(t, n) order by n), ', ') || ')'
    from pg_proc p where p.pronamespace = 'redrive'::regnamespace order by 1"""
TABLES = """
    select c.relkind = 'v', c.oid::regclass::text, a.attname::text from pg_class c
    left join pg_attribute a on a.attrelid = c.oid and a.attnum = 1
    where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'v', 'p') order by 2"""


class Cell(NamedTuple):
    """That a login may do something with something."""

    login: str
    object: str
    privilege: str


@pytest.fixture(scope="module")
def documented(second_server: Server) -> Iterator[tuple[str, dict[str, set[str]]]]:
    """A database set up by the page; its logins, each with the roles it is a member of."""
    with second_server.empty() as url:
        with psycopg.connect(url, autocommit=True) as conn:
            blocks = re.findall(r"```sql\n(.*?)```", PAGE + ROLES_PAGE, re.DOTALL)
            logins, *grants = [b for b in blocks if "redrive_" in b]
            conn.execute(
                "create role your_application login; create role stranger login"
            )
            conn.execute(logins.replace("database app", f"database {conn.info.dbname}"))
            with psycopg.connect(url, autocommit=True, user="redrive_migrate") as owner:
                assert migrate(owner).without_roles is None
            for grant in grants:
                conn.execute(grant)
            members = conn.execute(
                "select l.rolname, array_agg(r.rolname::text) from pg_roles l"
                " left join pg_auth_members m on m.member = l.oid"
                " left join pg_roles r on r.oid = m.roleid and r.rolname <> 'redrive_owner'"
                " where l.rolcanlogin and not l.rolsuper and l.rolname <> 'redrive_migrate'"
                " group by 1"
            ).fetchall()
        yield url, {login: set(roles) - {None} for login, roles in members}
    for role in second_server.roles():
        second_server.drop_role(role)


def expected(logins: dict[str, set[str]]) -> set[Cell]:
    """The cells of privileges.txt for these logins."""
    found = re.findall(
        r"^(?:function|table|view) (\S.*?): (\w+)(?: \(.*\))? for (.*)$",
        MATRIX,
        re.MULTILINE,
    )
    return {
        Cell(login, name, privilege)
        for name, privilege, holders in found
        for login, roles in logins.items()
        if roles & {f"redrive_{holder}" for holder in holders.split(", ")}
    }


def may(conn: Connection, statement: str) -> bool:
    """Whether it is refused for want of a right; nothing of it stays."""
    try:
        conn.execute(statement)  # type: ignore[arg-type]
    except psycopg.Error as error:
        return not str(error.diag.message_primary).startswith("permission denied for")
    finally:
        conn.rollback()
    return True


def tried(url: str, login: str) -> Iterator[Cell]:
    """What a login may do, by doing it."""
    with psycopg.connect(url, user=login, options="-c statement_timeout=10s") as conn:
        with psycopg.connect(url) as catalog:
            functions = catalog.execute(FUNCTIONS).fetchall()
            tables = catalog.execute(TABLES).fetchall()
        for name, call in functions:
            if may(conn, call):
                yield Cell(login, name, "execute")
        for is_view, table, column in tables:
            statements = {"select": f"select from {table} limit 0"}
            if not is_view:
                statements |= {
                    "insert": f"insert into {table} default values",
                    "delete": f"delete from {table}",
                    "truncate": f"truncate {table}",
                }
                if column is not None:
                    statements["update"] = f"update {table} set {column} = default"
            for privilege, statement in statements.items():
                if may(conn, statement):
                    yield Cell(login, table, privilege)


def test_each_documented_login_may_do_what_is_written_and_nothing_else(
    documented: tuple[str, dict[str, set[str]]],
) -> None:
    """Roles x functions and tables, 0 unexpected cells; the grants are the page's."""
    url, logins = documented
    found = {cell for login in logins for cell in tried(url, login)}

    assert logins.keys() >= {
        "redrive_jobs",
        "redrive_ops",
        "redrive_gateway",
        "your_application",
        "redrive_keys",
    }
    assert logins["stranger"] == set()
    assert found - expected(logins) == set()
    assert expected(logins) - found == set()
