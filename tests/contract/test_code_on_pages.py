"""Python and SQL as the pages show it: it runs, and every name in it is somebody's."""

import builtins
import dis
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import psycopg
import pytest

import redrive
from redrive import Handlers
from tests import pages
from tests.factories import complete_next, make_job, make_worker
from tests.postgres import Connection, Database

ELSEWHERE = frozenset(
    f"docs/{page}.md"
    for page in (
        "celery",
        "frameworks",
        "order-and-fairness",
        "outbox",
        "python",
        "testing",
        "tutorial",
    )
)
"""Pages whose code is made from the package, or has a test that looks at what it does."""
PUBLIC = {name: getattr(redrive, name) for name in redrive.__all__}


def on_pages(language: str) -> list[str]:
    return sorted({block.page for block in pages.blocks(language)} - ELSEWHERE)


def of_readers(conn: Connection) -> dict[str, Any]:
    """What a reader has, and pages do not show again."""
    pool = SimpleNamespace(connection=lambda: nullcontext(conn))
    return PUBLIC | {
        "Decimal": Decimal,
        "UTC": UTC,
        "app": SimpleNamespace(conf={}),
        "ap_pool": pool,
        "conn": conn,
        "customer": "customer-17",
        "datetime": datetime,
        "eu_pool": pool,
        "is_still_sold": print,
        "job_id": ended_job(conn),
        "jobs": Handlers(),
        "pages": range(3),
        "psycopg": psycopg,
        "read_and_store": print,
        "redrive": redrive,
        "remove_the_draft": print,
        "timedelta": timedelta,
        "us_pool": pool,
    }


def ended_job(conn: Connection) -> int:
    job, worker = make_job(conn), make_worker(conn)
    assert complete_next(conn, worker) == {job}
    return job


def handlers_of_the_readme() -> ModuleType:
    """Return the module app.jobs, which several pages import."""
    (block,) = (
        block
        for block in pages.blocks("python")
        if block.page == "README.md" and block.text.startswith("# app/jobs.py")
    )
    module = ModuleType("app.jobs")
    exec(compile(block.text, str(block), "exec"), vars(module))
    return module


@pytest.mark.parametrize("page", on_pages("python"))
def test_python(page: str, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page; what has `(...)` in it is a sketch, and is compiled."""
    names = of_readers(database.conn)
    monkeypatch.setitem(sys.modules, "app", ModuleType("app"))
    monkeypatch.setitem(sys.modules, "app.jobs", handlers_of_the_readme())
    for block in pages.blocks("python"):
        if block.page != page:
            continue
        code = compile(block.text, str(block), "exec")
        if "(...)" not in block.text:
            exec(code, names)  # what the page shows

        assert set(looked_up(code)) - names.keys() - set(dir(builtins)) == set()


def looked_up(code: CodeType) -> Iterator[str]:
    """The globals that functions in it use."""
    yield from (
        i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"
    )
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from looked_up(inner)


@pytest.mark.parametrize("page", on_pages("sql"))
def test_sql(page: str, database: Database) -> None:
    """All of a page in one transaction that is rolled back."""
    name = database.conn.info.dbname
    with database.conn.transaction(force_rollback=True):
        database.conn.execute("create role your_application")
        there = database.conn.execute("select rolname from pg_roles").fetchall()
        ours = "|".join(name for (name,) in there if name.startswith("redrive_"))
        for block in pages.blocks("sql"):
            if block.page == page:
                text = block.text.replace("database app ", f'database "{name}" ')
                # The schema of the test has made these.
                text = re.sub(f"create role ({ours}) nologin;", "", text)
                database.conn.execute(text)  # type: ignore[arg-type]
