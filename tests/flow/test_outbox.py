"""The recipe of docs/outbox.md, run as it is written and killed between each two of its steps."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.flow import look
from tests.flow.harness import ROOT, Workers, kill, wait_for
from tests.postgres import Database

BLOCKS = re.findall(
    r"^```(\w+)\n(.*?)^```",
    (ROOT / "docs" / "outbox.md").read_text(),
    re.DOTALL | re.MULTILINE,
)

ASKED, BOOKED, NOTING, COMPLETING, COMMITTING, COMMITTED = range(1, 7)
"""Orders, by where their handlers are when the worker is killed."""

# Who comes by one of these points with an order's number waits there while the test holds the lock
# (point, number).
POINTS = """
create function wait_here() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock(
        tg_argv[0]::int, substring(to_jsonb(new) ->> tg_argv[1] from '[0-9]+')::int);
    return new;
end $$;
create constraint trigger placed after insert on orders initially deferred
    for each row execute function wait_here(0, 'number');
create trigger noting before insert on charges
    for each row execute function wait_here(1, 'order_number');
create trigger completing before insert on redrive.completions
    for each row execute function wait_here(2, 'key');
create constraint trigger noted after insert on charges initially deferred
    for each row execute function wait_here(3, 'order_number');
"""
PLACED, AT_NOTE, AT_COMPLETE, AT_COMMIT = range(4)


class Provider:
    """Charges each key once. Until it is open it leaves two of the orders without an answer."""

    def __init__(self) -> None:
        self.charged: dict[str, int] = {}
        self.calls: list[int] = []
        self.is_open = threading.Event()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # named so by its base class
                pass

            def do_POST(self) -> None:
                order = json.loads(
                    self.rfile.read(int(self.headers["Content-Length"]))
                )["order"]
                key = self.headers["Idempotency-Key"]
                provider.calls.append(order)
                is_held = not provider.is_open.is_set()
                if order != ASKED or not is_held:
                    provider.charged.setdefault(key, order)
                if order in {ASKED, BOOKED} and is_held:
                    provider.is_open.wait()
                    return
                body = json.dumps({"id": f"ch_{key}"}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/charges"


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    thread = threading.Thread(target=provider.server.serve_forever, args=(0.05,))
    thread.start()
    yield provider
    provider.is_open.set()
    provider.server.shutdown()
    thread.join()
    provider.server.server_close()


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Database:
    """The page's tables and modules."""
    (tables,) = (text for language, text in BLOCKS if language == "sql")
    database.conn.execute(tables)
    database.conn.execute(POINTS)
    (tmp_path / "app").mkdir()
    for language, text in BLOCKS:
        if language == "python":
            (tmp_path / re.findall(r"^# (app/\w+\.py): ", text)[0]).write_text(text)
    return database


def _run(workers: Workers, provider: Provider, *arguments: str) -> Any:
    return workers(
        *arguments,
        handlers="app.jobs:jobs",
        pythonpath=workers.home,
        provider_url=provider.url,
        shop_database_url=workers.url,
        no_proxy="127.0.0.1",
        redrive_slots=8,
    )


def _place(shop: Database, home: Path, number: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "app.place", str(number), "4990"],
        cwd=home,
        env=os.environ | {"SHOP_DATABASE_URL": shop.url},
    )


def _hold(shop: Database, point: int, number: int) -> None:
    shop.rows("select pg_advisory_lock(%s, %s)", point, number)


def _let_go(shop: Database, point: int, number: int) -> None:
    shop.rows("select pg_advisory_unlock(%s, %s)", point, number)


def _waiting(shop: Database) -> set[tuple[int, int]]:
    """Who waits at which point."""
    return set(
        shop.rows(
            "select classid::int, objid::int from pg_locks"
            " where locktype = 'advisory' and not granted"
        )
    )


def _on_record(shop: Database) -> set[int]:
    """Whose charge is on record: whose call was answered, unless its handler's transaction had its
    job before.
    """
    found = shop.column(
        "select substring(j.idempotency_key from '[0-9]+')::int from redrive.side_effects e"
        " join redrive.jobs j on j.id = e.job where e.what = 'card charged'"
    )
    assert set(found) <= {NOTING, COMPLETING, COMMITTING, COMMITTED}
    return set(found)


def _cut_off(shop: Database) -> None:
    """What waits at a point is rolled back, as it is when its client's end is noticed."""
    shop.rows(
        "select pg_terminate_backend(pid, 60000) from pg_locks"
        " where locktype = 'advisory' and not granted"
    )


def test_a_job_exists_exactly_when_its_order_does(
    shop: Database, workers: Workers, provider: Provider
):
    before, after = 1, 2
    for number in (before, after):
        _hold(shop, PLACED, number)
    producers = {
        number: _place(shop, workers.home, number) for number in (before, after)
    }
    wait_for(lambda: _waiting(shop) == {(PLACED, before), (PLACED, after)})
    for producer in producers.values():
        producer.send_signal(signal.SIGSTOP)
    _let_go(shop, PLACED, after)
    wait_for(
        lambda: shop.column("select number from orders"),
        what="the frozen producer's commit is Postgres's",
    )
    for producer in producers.values():
        producer.kill()
        producer.wait()
    _cut_off(shop)

    assert shop.column("select number from orders") == [after]
    assert shop.column("select idempotency_key from redrive.jobs") == [f"order-{after}"]

    assert _place(shop, workers.home, 3).wait(180) == 0
    provider.is_open.set()
    assert _run(workers, provider, "--until-empty").wait() == 0

    assert provider.charged == {"order-2": 2, "order-3": 3}
    assert sorted(provider.calls) == [2, 3]


def test_an_order_is_charged_once_wherever_its_handler_is_killed(
    shop: Database, workers: Workers, provider: Provider
):
    stops = {
        (AT_NOTE, NOTING),
        (AT_COMPLETE, COMPLETING),
        (AT_COMMIT, COMMITTING),
        (AT_COMMIT, COMMITTED),
    }
    for point, number in stops:
        _hold(shop, point, number)
    orders = range(ASKED, COMMITTED + 1)
    place = runpy.run_path(str(workers.home / "app" / "place.py"))["place"]
    for number in orders:
        place(shop.conn, number, 4990)
    worker = _run(workers, provider)
    wait_for(
        lambda: _waiting(shop) == stops and {ASKED, BOOKED} <= {*provider.calls},
        what="somebody is elsewhere",
    )
    wait_for(lambda: NOTING in _on_record(shop))

    for runner in worker.runners:
        os.kill(runner, signal.SIGSTOP)
    _let_go(shop, AT_COMMIT, COMMITTED)
    wait_for(lambda: shop.column("select order_number from charges") == [COMMITTED])
    _cut_off(shop)
    kill(shop, worker)  # its runners die with it, frozen or not
    for point, number in stops:
        _let_go(shop, point, number)
    provider.is_open.set()
    assert look.live(shop) == 5, "none is lost, and only the committed one is done"
    assert _run(workers, provider, "--until-empty").wait() == 0

    assert Counter(provider.calls) == dict.fromkeys(orders, 2) | {COMMITTED: 1}
    assert provider.charged == {f"order-{number}": number for number in orders}
    assert dict(shop.rows("select order_number, charge from charges")) == {
        n: f"ch_order-{n}" for n in orders
    }
    assert (look.live(shop), look.reasons(shop)) == (0, {})
