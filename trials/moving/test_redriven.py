"""Another queue's dead letters, redriven here, to an endpoint of that queue's users."""

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from redrive.cli import main
from tests.cli.conftest import Redrive
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database

MOVED = int(os.environ.get("REDRIVE_TEST_MOVED", "500"))
SOURCE = ("--source", "shop-dlq")


class Shop(ThreadingHTTPServer):
    """An endpoint that charges orders; which, it remembers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Charge)
        self.charged: list[int] = []


class Charge(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.charged.append(json.loads(body)["order"])  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def lines(count: int) -> str:
    """Orders in gold have no rate; each fourth of the others met a bank that slept."""
    return "".join(
        json.dumps(
            {
                "source_id": str(n),
                "kind": "order.charge",
                "payload": {"order": n, "currency": "XAU" if is_gold else "EUR"},
                "died_at": f"2026-03-01T12:{n % 60:02}:00Z",
                "attempts": 5,
                **(
                    {"error_class": "ValueError", "message": f"no rate for order {n}"}
                    if is_gold
                    else {
                        "error_class": "TimeoutError",
                        "message": f"no answer in {n} ms",
                    }
                ),
            }
        )
        + "\n"
        for n in range(count)
        for is_gold in [n % 4 > 0]
    )


def test_dead_letters_of_others_are_grouped_explained_and_redriven(
    redrive: Redrive,
    database: Database,
    workers: Workers,
    shop: Shop,
    capsys: pytest.CaptureFixture[str],
):
    come = ("dlq", "import", "-", *SOURCE, "--yes", "--json", "--why", "we move")
    came = redrive(*come, stdin=lines(MOVED))
    database.rows("select redrive.fold_groups_v1()")
    gold, bank = redrive("dlq", "groups", "--json").lines
    said = redrive("dlq", "explain", gold["group"], "--json").json
    (workers.home / "targets.yaml").write_text(
        "allowed_hosts: [127.0.0.1]\ntargets: {order.charge: {url: 'http://127.0.0.1:"
        f"{shop.server_port}/charge'}}}}"
    )
    workers(
        handlers="", redrive_targets=workers.home / "targets.yaml", redrive_slots=16
    )
    back = ("--all", "--yes", "--json", "--why", "the rates are there")
    capsys.readouterr()
    assert (
        main(
            ["dlq", "redrive", *back, "--canaries", "3", "--database-url", database.url]
        )
        == 0
    )
    redriven = json.loads(capsys.readouterr().out)

    assert came.json == {"matched": MOVED, "imported": MOVED, "skipped": 0}
    assert (gold["open"], gold["error_class"]) == (MOVED * 3 // 4, "ValueError")
    assert (bank["open"], bank["category"]) == (MOVED // 4, "transient")
    assert (said["findings"][0]["field"], said["findings"][0]["value"]) == (
        "payload.currency",
        "XAU",
    )
    assert (redriven["matched"], redriven["blocked"]) == (MOVED, {})
    wait_for(lambda: database.value("select count(*) from redrive.jobs") == 0)
    assert sorted(shop.charged) == [*range(MOVED)]
    assert database.rows(
        "select distinct state, outcome from redrive.dead_letters"
    ) == [("resolved", "succeeded")]
    assert redrive("queue", "ls", "--json").json["dead"] == 0
    assert redrive(*come, stdin=lines(MOVED)).json["imported"] == 0, (
        "it succeeded since"
    )
