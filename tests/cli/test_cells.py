"""Commands over several databases: three cells on one server, and one that is out of reach."""

import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from redrive import cell_of, enqueue
from redrive.cli.support.connection import ask_each
from redrive.cli.support.connection import database as connected
from redrive.cli.support.exits import Exit
from redrive.settings import Settings
from tests.cli.conftest import Ran, Redrive
from tests.cli.test_explain import die, succeed
from tests.factories import make_dead_letter, make_job, make_worker
from tests.postgres import Database, Server

CELLS = ("eu", "us", "ap")
GONE = "postgresql://user:p4ss@127.0.0.1:1/x"


def written(folder: Path, urls: dict[str, str], **more: str) -> str:
    """A file of cells."""
    path = folder / "cells.json"
    path.write_text(
        json.dumps([{"name": name, "url": url} | more for name, url in urls.items()])
    )
    return str(path)


@pytest.fixture
def cells(server: Server) -> Iterator[dict[str, Database]]:
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(server.database()) for name in CELLS}


@pytest.fixture
def at(
    redrive: Redrive, cells: dict[str, Database], tmp_path: Path
) -> Callable[..., Ran]:
    """Run a command with these cells, and others beside them."""

    def run(
        *arguments: str, beside: dict[str, str] | None = None, **environment: str
    ) -> Ran:
        urls = {name: database.url for name, database in cells.items()} | (beside or {})
        return redrive(
            *arguments, REDRIVE_DATABASES=written(tmp_path, urls), **environment
        )

    return run


def test_lists_are_of_all_cells_and_one_that_is_gone_hides_no_other(
    at: Callable[..., Ran], cells: dict[str, Database]
) -> None:
    keys = [f"customer-{n}" for n in range(30)]
    for key in keys:
        enqueue(cells[cell_of(key, cells)].conn, "a", tenant=key, queue="mail")
    for n, (cell, database) in enumerate(cells.items(), 1):
        make_worker(database.conn, f"{cell}/1")
        for _ in range(n):
            make_dead_letter(database.conn)

    def told(*arguments: str, **of_cells: Any) -> list[dict[str, Any]]:
        ran = at(*arguments, "--json", **of_cells)
        assert ran.code == (69 if of_cells else 0), ran.err
        assert (ran.err == "") != bool(of_cells)
        return ran.lines

    ready = {
        row["cell"]: row["ready"]
        for row in told("queue", "ls")
        if row["queue"] == "mail"
    }
    assert ready == Counter(cell_of(key, CELLS) for key in keys)
    workers = [(row["cell"], row["name"]) for row in told("worker", "ls")]
    assert workers == [(cell, f"{cell}/1") for cell in CELLS]
    groups = [(row["cell"], row["open"]) for row in told("dlq", "groups")]
    assert groups == [("ap", 3), ("us", 2), ("eu", 1)]
    largest = at("dlq", "groups", "--limit", "1", "--json")
    assert [row["cell"] for row in largest.lines] == ["ap"]
    assert largest.err == "only the largest are listed; --limit is 1\n"
    checked = {row.get("cell") for row in told("check", beside={"sa": GONE})}
    assert checked == {None, *CELLS}

    shown = at("queue", "ls", beside={"sa": GONE}, COLUMNS="160")
    assert shown.out.split()[:2] == ["cell", "queue"]
    assert shown.err.startswith("redrive: cell sa: the database cannot be reached: ")
    assert "p4ss" not in shown.err
    assert at("dlq", "groups", COLUMNS="160").out.split()[:2] == ["cell", "open"]
    assert at("worker", "ls", COLUMNS="160").out.split()[:2] == ["cell", "name"]


def test_the_largest_causes_of_all_cells_are_listed(
    at: Callable[..., Ran], cells: dict[str, Database]
) -> None:
    for n, database in enumerate(cells.values(), 1):
        die(database, n, "f1" * 8, "EUR", "node-1")

    found = at("dlq", "groups", "--json").lines
    shown = at("dlq", "groups", "--limit", "1", COLUMNS="200")
    away = at("dlq", "groups", "--json", beside={"sa": GONE})

    assert [(row["cell"], row["open"]) for row in found] == [
        ("ap", 3),
        ("us", 2),
        ("eu", 1),
    ]
    assert shown.out.split()[:3] == ["cell", "open", "total"]
    assert (away.code, away.lines) == (69, found)
    assert shown.err == "only the largest are listed; --limit is 1\n"
    assert "largest" not in away.err


def test_a_group_is_explained_by_the_jobs_of_all_cells(
    at: Callable[..., Ran], cells: dict[str, Database]
) -> None:
    """No cell has enough dead letters to compare; together they have, and all are in two cells."""
    for cell in ("us", "ap"):
        die(cells[cell], 4, "f1" * 8, "XAU", "node-1")
    for database in cells.values():
        succeed(database, 20)

    alone = at("dlq", "explain", "f1f1", "--cell", "us")
    ran = at("dlq", "explain", "f1f1", "--json")
    away = at("dlq", "explain", "f1f1", "--json", beside={"sa": GONE})
    nothing = at("dlq", "explain", "d3d3")

    assert alone.out.startswith("too few to compare")
    assert (ran.code, ran.json["open"], ran.json["looked_at"]) == (0, 8, 8)
    assert ran.json["compared_with"]["succeeded"] == 60
    (found,) = ran.json["findings"]
    assert (found["field"], found["met"], found["base_met"]) == (
        "payload.currency",
        8,
        0,
    )
    assert (away.code, away.json) == (69, ran.json)
    assert nothing.code == 2


def test_explain_names_the_cell_that_sets_a_group_apart(
    at: Callable[..., Ran], cells: dict[str, Database]
) -> None:
    die(cells["us"], 20, "f1" * 8, "EUR", "node-1")
    for database in cells.values():
        succeed(database, 40)

    found = at("dlq", "explain", "f1f1", "--json").json["findings"]

    assert [(one["field"], one["value"], one["met"]) for one in found] == [
        ("cell", "us", 20)
    ]


def test_a_cell_that_is_named_is_as_if_it_were_the_only_one(
    at: Callable[..., Ran], cells: dict[str, Database]
) -> None:
    for database in cells.values():
        database.rows("select redrive.enqueue('a', queue => 'mail')")

    (row,) = at("queue", "ls", "--json", "--cell", "us").lines
    assert row["cell"] == "us"
    paused = at("queue", "pause", "mail", "--why", "x", "--yes", REDRIVE_CELL="us")
    assert paused.code == 0, paused.err
    counts = {
        name: d.value("select count(*) from redrive.audit") for name, d in cells.items()
    }
    assert counts == {"eu": 0, "us": 1, "ap": 0}
    direct = at(
        "queue", "ls", "--json", "--database-url", cells["us"].url, REDRIVE_CELL="eu"
    )
    assert direct.json["paused"] is True


ONE = (
    "queue pause mail --why x --yes",
    "dlq redrive --all --why x --yes",
    "purge --yes",
    "enqueue a",
    "migrate",
    "dlq ls",
)


def test_what_is_for_one_cell_refuses_to_guess(
    redrive: Redrive, tmp_path: Path
) -> None:
    path = written(tmp_path, dict.fromkeys(CELLS, GONE))
    for command in ONE:
        ran = redrive(*command.split(), REDRIVE_DATABASES=path)

        assert ran.code == 64
        assert ran.err.endswith("name one by --cell or REDRIVE_CELL: eu, us, ap\n")


def test_a_cell_that_there_is_not_and_a_file_that_there_is_not_are_refused(
    redrive: Redrive, tmp_path: Path
) -> None:
    path = written(tmp_path, dict.fromkeys(CELLS, GONE))
    unknown = redrive("queue", "ls", "--cell", "uk", REDRIVE_DATABASES=path)
    both = redrive(
        "queue", "ls", "--cell", "eu", "--database-url", GONE, REDRIVE_DATABASES=path
    )
    missing = redrive("queue", "ls", REDRIVE_DATABASES="/nowhere/cells.json")
    alone = redrive("queue", "ls", "--cell", "eu")

    assert [ran.code for ran in (unknown, both, missing, alone)] == [64] * 4
    assert (
        "there is no cell 'uk' in REDRIVE_DATABASES; there are: eu, us, ap"
        in unknown.err
    )
    assert "--database-url or --cell, not both" in both.err
    assert (
        "REDRIVE_DATABASES is /nowhere/cells.json; it cannot be read: No such"
        in missing.err
    )
    assert "is one of REDRIVE_DATABASES, which is not set" in alone.err


def test_a_role_is_all_that_a_login_has_there(
    redrive: Redrive, database: Database, tmp_path: Path
) -> None:
    path = written(tmp_path, {"eu": database.url}, role="redrive_viewer")
    database.rows("select redrive.enqueue('a', queue => 'mail')")
    ran = redrive("queue", "ls", "--json", REDRIVE_DATABASES=path)
    refused = redrive(
        "queue", "pause", "mail", "--why", "x", "--yes", REDRIVE_DATABASES=path
    )

    assert ran.json["ready"] == 1
    assert refused.code == 1
    assert (
        "permission denied for function pause_v1 (42501); docs/roles.md" in refused.err
    )


def test_sql_finds_the_cell_that_python_does(database: Database) -> None:
    """The statement of docs/cells.md."""
    page = (Path(__file__).parents[2] / "docs" / "cells.md").read_text()
    statement: Any = page.partition("```sql\n")[2].partition(";\n```")[0]
    keys = [*(f"customer-{n}" for n in range(50)), "Zoë", "", "日本"]
    assert "'customer-17'" in statement

    found = {
        key: database.value(statement.replace("'customer-17'", "%s"), key)
        for key in keys
    }
    assert found == {key: cell_of(key, CELLS) for key in keys}


def test_an_id_names_its_cell_wherever_people_read_it(
    at: Callable[..., Ran], cells: dict[str, Database]
) -> None:
    """Job 17 exists in each cell, and nobody could tell which one was meant."""
    for database in cells.values():
        job = make_dead_letter(database.conn)
    eu = ("--cell", "eu")

    (row,) = at("dlq", "ls", *eu, "--json").lines
    assert (row["cell"], row["id"]) == ("eu", job)
    planned = at("campaign", "plan", *eu).out
    campaign = planned.rpartition(" ")[2].strip()
    assert campaign.startswith("eu:")
    texts = {
        "dlq ls": at("dlq", "ls", *eu, COLUMNS="160").out,
        "dlq show": at("dlq", "show", str(job), *eu).out,
        "dlq show GROUP": at("dlq", "show", row["group"], *eu).out,
        "job show": at("job", "show", str(job), *eu).out,
        "report": at("dlq", "report", "--since", "7d", *eu).out,
        "plan": planned,
    }
    assert {name for name, text in texts.items() if f"eu:{job}" not in text} == set()
    assert "--cell eu" in texts["report"]
    every = at("dlq", "report", "--since", "7d").out
    assert {cell for cell in CELLS if f"{cell}:{job}" in every} == set(CELLS)
    started = at("campaign", "start", campaign, "--why", "w", "--yes")
    assert f"campaign {campaign}: " in started.out


def test_an_id_with_its_cell_selects_the_cell(
    at: Callable[..., Ran], cells: dict[str, Database]
) -> None:
    """What a list shows can be typed."""
    jobs = {cell: make_dead_letter(d.conn, cell) for cell, d in cells.items()}
    us, eu = f"us:{jobs['us']}", f"eu:{jobs['eu']}"

    assert at("dlq", "show", us, "--json").json["kind"] == "us"
    assert at("dlq", "show", us, "--json", REDRIVE_CELL="eu").json["kind"] == "us"
    assert at("job", "show", eu, "--json").json["kind"] == "eu"
    assert [r["kind"] for r in at("dlq", "ls", "--id", us, "--json").lines] == ["us"]
    assert at("dlq", "note", us, "seen").code == 0
    dismissed = at("dlq", "dismiss", us, "--why", "w", "--yes")
    assert dismissed.code == 0, dismissed.err
    states = {
        c: d.value("select state from redrive.dead_letters") for c, d in cells.items()
    }
    assert states == {"eu": "open", "us": "dismissed", "ap": "open"}
    missed = at("dlq", "show", "us:999")
    look = "redrive job show us:999 shows what happened to it"
    text = f"redrive: job us:999 has no dead letter; {look}\n"
    assert (missed.code, missed.err) == (2, text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("dlq", "show", "us:1", "--cell", "eu"), "a command works on one cell"),
        (("dlq", "note", "--cell", "eu", "us:1", "x"), "a command works on one cell"),
        (("dlq", "dismiss", "us:1", "eu:1", "--why", "w"), "cells us and eu are named"),
        (("dlq", "show", "sa:1"), "there is no cell 'sa'"),
        (("dlq", "note", "us:x", "text"), "'us:x' is not an id; write 17, or eu:17"),
    ],
)
def test_ids_of_two_cells_or_of_an_unknown_one_are_refused(
    at: Callable[..., Ran], arguments: tuple[str, ...], says: str
) -> None:
    """A command works on one cell."""
    ran = at(*arguments)

    assert ran.code == 64
    assert says in ran.err


def test_without_cells_an_id_with_a_cell_is_refused(redrive: Redrive) -> None:
    """With one database, ids are plain numbers."""
    ran = redrive("dlq", "show", "eu:1")

    assert ran.code == 64
    assert "REDRIVE_DATABASES, which is not set" in ran.err


def test_an_id_with_its_cell_acknowledges_the_group(
    at: Callable[..., Ran], cells: dict[str, Database]
) -> None:
    """An id of a dead letter names its cell, too."""
    cell, database = next(iter(cells.items()))
    job = make_dead_letter(database.conn)

    done = at("dlq", "ack", f"{cell}:{job}", "--why", "on it", "--yes", "--json")

    held = database.value("select fingerprint from redrive.open_groups")
    assert done.json == {"cell": cell, "group": held, "acknowledged": True}


@pytest.mark.parametrize("frozen", [("eu",), ("eu", "us")])
def test_a_database_that_freezes_behind_an_open_connection_is_not_waited_for(
    cells: dict[str, Database], tmp_path: Path, frozen: tuple[str, ...]
) -> None:
    stopped: list[int] = []
    file = Path(written(tmp_path, {cell: cells[cell].url for cell in frozen}))
    asked = [Settings(databases=file, cell=cell) for cell in frozen]

    def read(settings: Settings) -> None:
        with connected(settings) as conn:
            backend = conn.info.backend_pid
            stopped.append(backend)
            os.kill(backend, signal.SIGSTOP)
            conn.execute("select")

    try:
        if len(frozen) > 1:
            assert ask_each(asked, read, seconds=3) == ([], Exit.UNREACHABLE)
        else:
            with pytest.raises(psycopg.OperationalError, match="not answered within"):
                ask_each(asked, read, seconds=3)
    finally:
        for backend in stopped:
            os.kill(backend, signal.SIGCONT)


def test_a_tenant_moves_by_the_scripts_of_the_docs(
    at: Callable[..., Ran], cells: dict[str, Database], tmp_path: Path
) -> None:
    old, new = cells["eu"], cells["us"]
    died = make_dead_letter(old.conn, tenant="customer-7")
    for number in range(2):
        make_job(
            old.conn,
            payload={"n": number, "no": None},
            tenant="customer-7",
            ordering_key="k",
        )
    make_job(old.conn, tenant="customer-8")

    lines = {name: _printed(old, name) for name in ("waiting", "dead")}
    for name, text in lines.items():
        (tmp_path / name).write_text(text)
    why = ("--yes", "--why", "it moves")
    assert at("enqueue", "-", "--cell", "us", stdin=lines["waiting"]).code == 0
    for _ in range(2):  # the import can be repeated
        assert (
            at(
                "dlq",
                "import",
                str(tmp_path / "dead"),
                "--source",
                "eu",
                "--cell",
                "us",
                *why,
            ).code
            == 0
        )
    assert at("job", "cancel", "--cell", "eu", "--tenant", "customer-7", *why).code == 0
    assert (
        at("dlq", "dismiss", "--cell", "eu", "--tenant", "customer-7", *why).code == 0
    )

    assert new.rows(
        "select payload, tenant, ordering_key from redrive.jobs order by id"
    ) == [({"n": number, "no": None}, "customer-7", "k") for number in range(2)]
    same: LiteralString = (
        "select payload, error_class, message, reason from redrive.dead_letters"
    )
    assert new.rows(same) == old.rows(f"{same} where id = %s", died)
    assert old.column("select tenant from redrive.jobs") == ["customer-8"]


def _printed(database: Database, name: str) -> str:
    """What psql prints for a script."""
    script = (
        Path(__file__).parents[2] / "docs/moving" / f"cell_{name}.sql"
    ).read_text()
    rows = database.rows(script.replace(":'tenant'", "'customer-7'").replace("%", "%%"))  # type: ignore[arg-type]
    return "".join(f"{line}\n" for (line,) in rows)
