"""The spool: what happens while Postgres is away, if it is full, or a record is refused."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.app.task import Context

from redrive.celery import records
from redrive.celery.arguments import Arguments
from redrive.celery.database import connects_to
from redrive.celery.flush import flush
from redrive.celery.install import default_directory
from redrive.celery.receivers import Receivers
from redrive.celery.spool import Full, Spool
from redrive.database.embedded import free_port
from redrive.enqueue import enqueue
from redrive.errors import SettingsError
from redrive.rules.model import Category, Failure
from tests.celery.harness import Shop
from tests.cli.conftest import Redrive
from tests.flow.harness import ROOT, wait_for
from tests.postgres import Database


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    found = Spool(tmp_path / "spool", 100)
    found.prepare()
    return found


def put(spool: Spool, task: str, *, name: str = "shop.charge", **context: Any) -> None:
    """Write the record of a task that has failed."""
    request = Context(id=task, delivery_info={"routing_key": "celery"}, **context)
    given = Arguments([17], {})
    failure = records.failure_of(ValueError("no rate"), name, given)
    record = records.letter(request, name, failure, given)
    spool.put(records.name_of(task, None), records.encode(record))


def dead(database: Database) -> int:
    return database.value("select count(*) from redrive.dead_letters")


def command(spool: Path, url: str) -> subprocess.CompletedProcess[str]:
    """Run what an operator types."""
    return subprocess.run(
        [sys.executable, "-m", "redrive.celery", "flush", str(spool)],
        cwd=ROOT,
        env=os.environ | {"REDRIVE_DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_postgres_is_away_and_comes_back(shop: Shop, database: Database):
    nobody = f"postgresql://127.0.0.1:{free_port()}/nobody"
    shop.environment["SHOP_REDRIVE_URL"] = nobody
    worker = shop.worker()
    shop.send("Shop.charge", 17, kwargs={"currency": "XAU"})
    wait_for(lambda: "the database cannot be reached" in worker.log.read_text())
    shop.send("Shop.charge", 18, kwargs={"currency": "EUR"})
    wait_for(lambda: len(shop.lines("charged")) == 2)
    worker.stop()

    assert shop.waiting() == 1
    away = command(shop.spool, nobody)
    assert (away.returncode, "cannot be reached" in away.stderr) == (1, True)
    assert command(shop.spool, database.url).stdout == "1 sent\n"
    assert command(shop.spool, database.url).stdout == ""
    assert (dead(database), shop.waiting()) == (1, 0)


def test_the_end_of_a_worker_sends_what_is_left(shop: Shop, database: Database):
    worker = shop.worker()
    shop.send("Shop.charge", 17, kwargs={"currency": "XAU"})
    wait_for(lambda: shop.lines("charged"))

    assert worker.stop() == 0

    assert (dead(database), shop.waiting()) == (1, 0)


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_other_pools(shop: Shop, database: Database, pool: str):
    shop.worker(pool=pool)
    shop.send("Shop.charge", 17, kwargs={"currency": "XAU"})

    wait_for(lambda: dead(database) == 1)


def test_a_record_that_was_sent_before_changes_nothing(
    spool: Spool, database: Database
):
    connect = connects_to(database.url)
    put(spool, "a")
    kept = {path: path.read_bytes() for path in spool.waiting()}
    flush(spool, connect)
    for path, text in kept.items():  # as if a kill had come before the deletion
        path.write_bytes(text)

    flush(spool, connect)

    assert (dead(database), spool.waiting()) == (1, [])


def test_a_record_that_is_refused_stops_no_other(spool: Spool, database: Database):
    for n in range(3):
        put(spool, f"task-{n}")
    put(spool, "x" * 300)
    (spool.directory / "half.json").write_text('{"letter": ')

    assert flush(spool, connects_to(database.url)) == 3

    assert dead(database) == 3
    assert len(list(spool.directory.glob("*.refused"))) == 2
    assert spool.waiting() == []


def test_with_keys_the_database_has_only_ciphertext(
    spool: Spool, database: Database, keys: Callable[..., Path], redrive: Redrive
):
    path = keys("new")
    put(spool, "a")
    sent = records.Sent(17, 1, "celery", "a token")
    connect = connects_to(database.url)
    with connect() as conn:
        payload = {"job": 17, "send": 1, "token": sent.token}
        expected = enqueue(conn, **records.outcome_job("celery", payload), delay=600)
    ended = records.outcome(sent, Failure("ValueError", "no rate", Category.BUG, "f"))
    spool.put("outcome", records.encode(ended))

    assert flush(spool, connect) == 2

    stored = database.value(
        "select string_agg(d::text, '') || (select string_agg(f::text, '') from redrive.failures f)"
        " from redrive.dead_letters d"
    )
    (letter,) = redrive("dlq", "ls", "--json").lines
    show = ("dlq", "show", str(letter["id"]), "--json")
    opened = redrive(*show, REDRIVE_ENCRYPTION_KEYS_FILE=str(path)).json
    assert "no rate" not in stored
    assert opened["payload"]["args"] == [17]
    assert database.column("select id from redrive.jobs") == [expected]
    assert database.value("select run_at <= clock_timestamp() from redrive.jobs")


def test_a_forged_outcome_ends_nothing(spool: Spool, database: Database):
    """A publisher of tasks may know the number of a job and of its send."""
    token, guessed = "a" * 32, "b" * 32
    put(spool, "a")
    connect = connects_to(database.url)
    flush(spool, connect)
    (job,) = database.column(
        "update redrive.dead_letters set redrives = 1 returning id"
    )
    database.rows(
        "insert into redrive.checkpoints (job, deliveries, data)"
        " values (%s, 2, jsonb_build_object('data', jsonb_build_object('token', %s::text)))",
        job,
        token,
    )
    payload = {"job": job, "send": 1, "token": token}
    with connect() as conn:
        expected = enqueue(conn, **records.outcome_job("celery", payload), delay=600)

    states: list[str] = []
    for one in (guessed, token):
        sent = records.Sent(job, 1, "celery", one)
        spool.put(
            records.name_of("a", sent), records.encode(records.outcome(sent, None))
        )
        assert flush(spool, connect) == 1
        states += database.column("select state from redrive.dead_letters")
        due = "select run_at <= clock_timestamp() from redrive.jobs where id = %s"
        assert database.value(due, expected) == (one == token)

    assert states == ["open", "dismissed"]


def test_only_one_process_sends_at_a_time(spool: Spool, database: Database):
    put(spool, "a")
    with spool.turn() as is_ours:
        assert is_ours
        assert command(spool.directory, database.url).stdout == ""
    assert command(spool.directory, database.url).stdout == "1 sent\n"


def test_a_process_that_is_forked_meanwhile_does_not_keep_the_turn(
    spool: Spool, database: Database
):
    put(spool, "a")
    with spool.turn():
        pid = os.fork()
        if pid == 0:
            signal.pause()
    try:
        assert command(spool.directory, database.url).stdout == "1 sent\n"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_full_spool_takes_only_what_it_has(
    spool: Spool, caplog: pytest.LogCaptureFixture
):
    spool.limit = 1
    put(spool, "a")
    put(spool, "a")
    with pytest.raises(Full):
        put(spool, "b")

    app: Any = object()
    task = SimpleNamespace(
        app=app, name="shop.charge", run=print, request=Context(id="b")
    )
    error = ValueError("token=hush")
    Receivers(app, spool).failed(
        sender=task, task_id="b", exception=error, args=[], kwargs={}
    )

    assert "is full: the end of task b is not kept" in caplog.text
    assert "hush" not in caplog.text


def test_an_error_of_ours_never_reaches_the_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    receivers = Receivers(object(), Spool(tmp_path / "gone", 10))

    receivers.failed(sender=None, task_id="b", exception=None, args=None, kwargs=None)

    assert "a dead letter is lost" in caplog.text


def test_files_that_were_not_finished_are_deleted(spool: Spool, database: Database):
    old, new = spool.directory / ".17-1", spool.directory / ".17-2"
    for path in (old, new):
        path.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    put(spool, "a")

    flush(spool, connects_to(database.url))

    assert (old.exists(), new.exists()) == (False, True)


def test_a_directory_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "geteuid", lambda: 4711)

    with pytest.raises(SettingsError, match="it belongs to user"):
        Spool(tmp_path, 10).prepare()


def test_nothing_is_written_to_or_read_from_a_directory_of_somebody_else(
    spool: Spool,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    put(spool, "planted")
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    task = SimpleNamespace(
        app=None, name="shop.charge", run=print, request=Context(id="b")
    )

    Receivers(None, spool).failed(
        sender=task, task_id="b", exception=ValueError("no"), args=[], kwargs={}
    )
    with pytest.raises(SettingsError, match="it belongs to user"):
        flush(spool, connects_to(database.url))

    assert "it belongs to user" in caplog.text
    assert "the end of task b is not kept" in caplog.text
    assert (len(spool.waiting()), dead(database)) == (1, 0)


def test_a_link_is_refused(spool: Spool, tmp_path: Path):
    link = tmp_path / "link"
    link.symlink_to(spool.directory)

    with pytest.raises(SettingsError, match="it is a link"):
        put(Spool(link, 10), "a")

    assert spool.waiting() == []


def test_a_directory_that_others_could_write_to_is_closed_to_them(spool: Spool):
    spool.directory.chmod(0o777)

    put(spool, "a")

    assert spool.directory.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_was_cleaned_up_is_created_again(spool: Spool):
    spool.directory.rmdir()

    put(spool, "a")

    assert len(spool.waiting()) == 1


def test_each_app_has_a_directory_of_its_own():
    names = [default_directory(Celery(name)) for name in ("shop", "../../etc", None)]

    user = os.geteuid()
    assert names == [
        f"/var/tmp/redrive-celery-{user}-shop",
        f"/var/tmp/redrive-celery-{user}-.._.._etc",
        f"/var/tmp/redrive-celery-{user}-celery",
    ]


def test_only_the_owner_can_read_the_spool(spool: Spool):
    put(spool, "a")

    modes = [path.stat().st_mode & 0o777 for path in spool.waiting()]
    assert (spool.directory.stat().st_mode & 0o777, modes) == (0o700, [0o600])
