"""redrive campaign plan --try: handlers run in confinement."""

import base64
import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from redrive.extras.replay import confine
from redrive.rules.attempts.failure import describe
from tests.cli import tried
from tests.cli.conftest import Redrive
from tests.factories import (
    claim,
    failure,
    let_die,
    make_dead_letter,
    make_job,
    make_worker,
)
from tests.flow.harness import wait_for
from tests.postgres import Database

PLAN = ("campaign", "plan", "--handlers", "tests.cli.tried:jobs")
CALLS = [handler.kind for handler in tried.jobs if handler.kind.startswith("call.")]

HAS_LANDLOCK = pytest.mark.skipif(
    ctypes.CDLL(None).syscall(confine.CREATE_RULESET, None, ctypes.c_size_t(0), 1) < 1,
    reason="the kernel cannot protect files",
)


@pytest.fixture
def endpoint() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


def try_all(redrive: Redrive, *options: str) -> dict[str, Any]:
    return redrive(*PLAN, "--try", "100", "--json", *options).json["tried"]


def test_no_way_out_is_open(
    redrive: Redrive, database: Database, endpoint: socket.socket, tmp_path: Path
) -> None:
    """Calls from C libraries, other programs and threads are refused."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as local:
        local.bind(str(tmp_path / "socket"))
        local.setblocking(False)
        payload = {
            "url": database.url,
            "port": endpoint.getsockname()[1],
            "path": str(tmp_path / "socket"),
        }
        for kind in CALLS:
            make_dead_letter(database.conn, kind, payload)
        found = try_all(redrive)

        with pytest.raises(BlockingIOError):
            local.recv(1)
    with pytest.raises(BlockingIOError):
        endpoint.accept()
    assert database.value("select to_regclass('written')") is None
    assert found.pop("stopped_at_call") == len(CALLS)
    assert not any(found.values())


def test_no_other_process_can_be_signalled(
    redrive: Redrive, database: Database
) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        for kind in ("signals", "signals.indirect"):
            make_dead_letter(database.conn, kind, {"pid": other.pid})
        found = try_all(redrive)
        is_alive = other.poll() is None
        other.kill()

    assert (found["returned"], found["failed"], is_alive) == (2, {}, True)


def test_no_mode_owner_or_time_of_a_file_outside_is_changed(
    redrive: Redrive, database: Database, tmp_path: Path
) -> None:
    kept = tmp_path / "order.csv"
    kept.write_text("an order")
    before = kept.stat()
    for kind in ("file.changed", "file.copied"):
        make_dead_letter(database.conn, kind, {"path": str(kept)})
    found = try_all(redrive)

    assert (found["returned"], found["failed"]) == (2, {})
    after = kept.stat()
    assert (after.st_mode, after.st_uid, after.st_mtime, after.st_ctime) == (
        *(before.st_mode, before.st_uid, before.st_mtime, before.st_ctime),
    )


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_no_descendant_outlives_the_command(
    redrive: Redrive, database: Database, tmp_path: Path, ending: signal.Signals
) -> None:
    """A command that is killed cannot end them, so the sandbox does it itself."""
    make_dead_letter(database.conn, "descendants", {})
    command = [sys.executable, "-m", "redrive", *PLAN, "--try", "1"]
    environment = os.environ | {
        "REDRIVE_DATABASE_URL": database.url,
        "TMPDIR": str(tmp_path),
    }
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL
    ) as running:
        wait_for(lambda: [*tmp_path.rglob("ready")], seconds=60)
        group = next(iter(children_of(running.pid)))
        assert len(members_of(group)) >= 4
        running.send_signal(ending)

    wait_for(lambda: not members_of(group))


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [*map(int, found)]


def members_of(group: int) -> list[str]:
    """Return the processes of a group that have not ended."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, member = file.read_text().rpartition(")")[2].split()[:3]
            if int(member) == group and state != "Z":
                found.append(file.parent.name)
    return found


def test_no_process_leaves_the_session_that_is_ended(
    redrive: Redrive, database: Database
) -> None:
    make_dead_letter(database.conn, "survivor", {})
    found = try_all(redrive)

    assert (found["returned"], found["failed"]) == (1, {})


def test_no_variable_of_a_database_and_no_secret_is_seen(
    redrive: Redrive, database: Database
) -> None:
    names = ["REDRIVE_DATABASE_URL", "REDRIVE_LISTEN_URL", "PGPASSWORD", "PGSERVICE"]
    make_dead_letter(database.conn, "environment", {"names": names})
    given = {
        "PGPASSWORD": "x",
        "REDRIVE_LISTEN_URL": database.url,
        "SHOP_URL": "postgresql://shop:s3cr3tword@db/shop",
        "STRIPE_API_KEY": "s3cr3tword",
    }
    found = redrive(*PLAN, "--try", "100", "--json", **given).json["tried"]

    assert (found["returned"], found["failed"]) == (1, {})


def test_how_they_end_is_counted_and_nothing_is_kept(
    redrive: Redrive, database: Database
) -> None:
    payload = {"currency": "XAU", "token": "s3cr3t-t0ken", "n": 1, "seconds": 1}
    for kind in ("mended", "mended.async", "slow", "slow.async", "crash", "bug"):
        make_dead_letter(database.conn, kind, payload)
    died_so(database, payload)
    wide = Jsonb({"wide": "x" * 250_000})  # more than a socket takes at once
    database.rows("update redrive.dead_letters set payload = payload || %s", wide)
    before = everything(database)
    found = try_all(redrive)

    bug = "ValueError: no such currency: XAU, token=[redacted]"
    assert (found["returned"], found["stopped_at_call"], found["timed_out"]) == (
        2,
        0,
        2,
    )
    assert found["failed"] == {bug: 2, "RunnerLost: its process died: exit status 3": 1}
    assert found["again"] == 1
    assert everything(database) == before


def died_so(database: Database, payload: dict[str, Any]) -> None:
    """Make a dead letter with the failure of its handler."""
    with pytest.raises(ValueError, match="currency") as raised:
        tried.bug(payload)
    trace = raised.value.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    error = raised.value.with_traceback(trace)
    same = describe(error, "bug", secrets=[payload["token"]]).fingerprint
    job, worker = make_job(database.conn, "bug", payload), make_worker(database.conn)
    (claimed,) = claim(database.conn, worker)
    assert claimed.id == job
    let_die(database.conn, worker, claimed, failure=failure(fingerprint=same))


def everything(database: Database) -> list[Any]:
    tables = (
        "jobs",
        "dead_letters",
        "failures",
        "side_effects",
        "checkpoints",
        "audit",
    )
    return [
        database.rows(f"select * from redrive.{table} order by 1") for table in tables
    ]


def test_it_is_said_what_it_means(redrive: Redrive, database: Database) -> None:
    make_dead_letter(database.conn, "call.swallowed", {"port": 9})
    make_dead_letter(database.conn, "bug", {"currency": "XAU", "token": ""})
    said = redrive(*PLAN, "--try", "5").out

    counts = "0 returned, 1 failed, 1 reached an outgoing call, 0 timed out"
    assert f"tried in isolation: {counts}" in said
    assert "1 failed when tried: ValueError: no such currency: XAU" in said
    assert "a trial ends at an outgoing call" in said


def test_of_each_group_the_oldest_then_the_newest(
    redrive: Redrive, database: Database
) -> None:
    for n in range(4):
        make_dead_letter(database.conn, "bug", {"currency": f"A{n}", "token": ""})
    other = make_dead_letter(database.conn, "bug", {"currency": "other", "token": ""})
    database.rows(
        "update redrive.dead_letters set fingerprint = 'b' where id = %s", other
    )
    found = redrive(*PLAN, "--try", "3", "--json").json["tried"]["failed"]

    assert sorted(cause[30:] for cause in found) == [
        "A0, token=",
        "A3, token=",
        "other, token=",
    ]


def test_what_is_encrypted_is_opened(redrive: Redrive, database: Database) -> None:
    keys = {"REDRIVE_ENCRYPTION_KEYS": "k1 " + base64.b64encode(bytes(32)).decode()}
    redrive("enqueue", "bug", '{"currency": "XAU", "token": ""}', **keys)
    worker = make_worker(database.conn)
    let_die(database.conn, worker, *claim(database.conn, worker))
    assert database.value("select payload ? '$redrive' from redrive.dead_letters")
    found = redrive(*PLAN, "--try", "1", "--json", **keys).json["tried"]

    assert found["failed"] == {"ValueError: no such currency: XAU, token=": 1}


@HAS_LANDLOCK
def test_files_stay_and_temporary_ones_are_written(
    redrive: Redrive, database: Database, tmp_path: Path
) -> None:
    kept = tmp_path / "order.csv"
    kept.write_text("an order")
    make_dead_letter(database.conn, "file.kept", {"path": str(kept)})
    make_dead_letter(database.conn, "file.temporary")
    found = try_all(redrive)

    assert (kept.read_text(), found["returned"]) == ("an order", 1)
    assert [cause.partition(":")[0] for cause in found["failed"]] == ["PermissionError"]


def test_without_handlers_nothing_is_tried(
    redrive: Redrive, database: Database
) -> None:
    make_dead_letter(database.conn, "bug")
    refused = redrive("campaign", "plan", "--try", "3")
    assert (refused.code, "--try needs --handlers MODULE:ATTRIBUTE" in refused.err) == (
        64,
        True,
    )
    assert redrive(*PLAN, "--try", "101").code == 64
    assert "tried" not in redrive(*PLAN, "--json").json


def test_what_cannot_be_imported_without_calls_is_not_run(
    redrive: Redrive, database: Database, tmp_path: Path, endpoint: socket.socket
) -> None:
    port = endpoint.getsockname()[1]
    (tmp_path / "calling.py").write_text(
        "import socket\nfrom tests.cli.tried import jobs\n"
        f"socket.create_connection(('127.0.0.1', {port})).close()\n"
    )
    make_dead_letter(database.conn, "bug", {"currency": "XAU", "token": ""})
    refused = redrive(
        *("campaign", "plan", "--handlers", "calling:jobs", "--try", "1"),
        PYTHONPATH=str(tmp_path),
    )

    assert refused.code == 1
    assert "the handlers cannot be used without outgoing calls" in refused.err
    endpoint.accept()[0].close()  # by the command itself, as it does without --try
    with pytest.raises(BlockingIOError):
        endpoint.accept()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only it has such numbers")
def test_the_other_numbers_of_the_same_calls_end_it(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    opened = "import ctypes; ctypes.CDLL(None).syscall(ctypes.c_long((1 << 30) + 41), 2, 1, 0)"
    arguments = [str(theirs.fileno()), str(tmp_path), sys.executable, "-c", opened]
    with ours, theirs:
        ran = subprocess.run(
            [sys.executable, "-I", "-S", confine.__file__, *arguments],
            pass_fds=(theirs.fileno(),),
            check=False,
        )

    assert ran.returncode == -signal.SIGSYS


@HAS_LANDLOCK
def test_where_the_kernel_refuses_nothing_is_run(tmp_path: Path) -> None:
    """A confined process cannot begin a session, so it cannot confine another."""
    ours, theirs = socket.socketpair()
    program = (
        "from redrive.extras.replay.process import *; ConfinedProcess(lambda _: ())"
    )
    arguments = [str(theirs.fileno()), str(tmp_path), sys.executable, "-c", program]
    with ours, theirs:
        ran = subprocess.run(
            [sys.executable, "-I", "-S", confine.__file__, *arguments],
            pass_fds=(theirs.fileno(),),
            env=os.environ | {"TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    assert (
        "handlers cannot be confined here: the kernel refuses a new session"
        in ran.stderr
    )
