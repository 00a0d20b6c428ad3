"""The small server beside the work: probes are answered whatever strangers do."""

import contextlib
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from redrive import enqueue
from redrive.observability.health import (
    ACCEPTED_AT_ONCE,
    MAX_CONNECTIONS,
    MAX_SCRAPES,
    listen,
)
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database

CLIENTS = 1_000
DESCRIPTORS = 400
LIMITED = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
SERVER = """
import sys, time, threading, resource
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from redrive.observability import health

class Slow:
    def collect(self):
        time.sleep(float(sys.argv[1]))
        yield GaugeMetricFamily("redrive_example", "x" * 20_000_000, value=1)

registry = CollectorRegistry(auto_describe=False)
registry.register(Slow())
health.CONNECTION_SECONDS = float(sys.argv[2])
ok = lambda: {"loop": None}
print(health.serve(0, registry, live=ok, ready=lambda: {"database": 1 / 0}), flush=True)
time.sleep(60)
"""


class Exposed:
    """The server alone in a process, whose scrapes take a while."""

    def __init__(self, scrape: float, deadline: float) -> None:
        self.process = subprocess.Popen(
            [*LIMITED, sys.executable, "-c", SERVER, str(scrape), str(deadline)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def ask(self, text: bytes) -> socket.socket:
        found = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        found.sendall(text)
        return found

    def answer(self, text: bytes) -> bytes:
        """All that comes until the other side ends it."""
        with self.ask(text) as asked:
            return b"".join(iter(lambda: asked.recv(1 << 16), b""))


def _descriptors(pid: int) -> int:
    """How many files a process holds open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _drip(strangers: Iterable[socket.socket]) -> None:
    """Send a byte more on each connection that is still there."""
    for one in strangers:
        with contextlib.suppress(OSError):
            one.send(b"x")


@pytest.fixture
def exposed(request: pytest.FixtureRequest) -> Iterator[Exposed]:
    found = Exposed(*getattr(request, "param", (0.0, 20.0)))
    yield found
    found.process.kill()
    found.process.communicate()


@pytest.fixture
def crowd() -> Iterator[contextlib.ExitStack]:
    """Connections of a thousand clients, in a process with a high enough limit of files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (min(max(soft, 3 * CLIENTS), hard), hard)
    )
    with contextlib.ExitStack() as stack:
        yield stack
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


LIVE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
SLOW = b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: "


def test_probes_are_answered_while_a_thousand_slow_clients_hold_on(
    exposed: Exposed, crowd: contextlib.ExitStack
):
    """The probe timed out at 247 of them, and the process ran out of descriptors."""
    strangers: list[socket.socket] = []
    most = 0
    for _ in range(CLIENTS // 100):
        strangers += [crowd.enter_context(exposed.ask(SLOW)) for _ in range(100)]
        _drip(strangers)
        assert exposed.answer(LIVE)[8:].startswith(b" 200 ")
        most = max(most, _descriptors(exposed.process.pid))

    assert exposed.answer(LIVE).endswith(b"\r\n\r\nloop: ok\n")
    assert most <= MAX_CONNECTIONS + 3 * ACCEPTED_AT_ONCE


def test_a_worker_works_on_while_slow_clients_hold_more_than_it_may_have(
    database: Database, workers: Workers, crowd: contextlib.ExitStack
):
    """All its descriptors went to strangers, and a worker without any runs nothing."""
    worker = workers(under=LIMITED)
    wait_for(lambda: worker.get("/readyz")[0] == 200)
    strangers: list[socket.socket] = []
    for _ in range(DESCRIPTORS // 50 + 2):
        for _ in range(50):
            address = ("127.0.0.1", worker.port)
            strangers.append(
                crowd.enter_context(socket.create_connection(address, timeout=60))
            )
        _drip(strangers)

    def is_done_while_they_drip() -> bool:
        _drip(strangers)
        return database.value("select count(*) from redrive.jobs") == 0

    is_done_while_they_drip()
    enqueue(database.conn, "work.sync")

    wait_for(is_done_while_they_drip, 120, every=0.5)
    assert _descriptors(worker.pid) < DESCRIPTORS - 100, (
        "there is room for new runners and links"
    )
    assert worker.get("/livez") == (200, "loop: ok\n")
    assert worker.get("/metrics")[0] == 200


@pytest.mark.parametrize("exposed", [(0.0, 0.5)], indirect=True)
@pytest.mark.parametrize(
    "text", [b"", b"GET /livez HT", SLOW, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"]
)
def test_a_connection_ends_in_time_whatever_it_does(exposed: Exposed, text: bytes):
    """One that says nothing, one that drips, one that does not read what it asked for."""
    with exposed.ask(text) as asked:
        started = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - started < 60:
                time.sleep(0.05)
                asked.sendall(b"x")

        assert time.monotonic() - started < 60, "it was never ended"


@pytest.mark.parametrize("exposed", [(60.0, 60.0)], indirect=True)
def test_scrapes_that_hang_neither_pile_up_nor_hold_up_probes(
    exposed: Exposed, crowd: contextlib.ExitStack
):
    """A few at a time, the others are told so at once."""
    metrics = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    for _ in range(MAX_SCRAPES):
        crowd.enter_context(exposed.ask(metrics))

    assert exposed.answer(LIVE).endswith(b"loop: ok\n")
    assert exposed.answer(metrics)[8:].startswith(b" 503 ")


def test_requests_that_are_none_are_refused_and_nothing_else(exposed: Exposed):
    """Long headers, other methods, pipelines, bodies, garbage; a check that fails is no end."""
    long = b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000

    assert b"HTTP/1.1 400 " in exposed.answer(long)
    assert b"HTTP/1.1 400 " in exposed.answer(b"\x16\x03\x01 no HTTP\r\n\r\n")
    assert b"HTTP/1.1 405 " in exposed.answer(
        b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert b"HTTP/1.1 404 " in exposed.answer(
        b"GET /jobs?id=1 HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    assert exposed.answer(LIVE + LIVE).count(b"HTTP/1.1 ") == 1
    assert b"HTTP/1.1 500 " in exposed.answer(LIVE.replace(b"livez", b"readyz"))
    assert exposed.answer(LIVE.replace(b"GET", b"HEAD")).endswith(b"\r\n\r\n")
    assert exposed.answer(LIVE).endswith(b"loop: ok\n")


def test_figures_are_compressed_for_who_asks(exposed: Exposed):
    request = urllib.request.Request(
        f"http://127.0.0.1:{exposed.port}/metrics", headers={"Accept-Encoding": "gzip"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert int(answer.headers["Content-Length"]) < 200_000


def test_the_body_of_an_answer_does_not_wait_until_its_headers_are_acknowledged():
    """Each request on a kept connection to the console took 40 ms longer."""
    with (
        listen(0, "REDRIVE_HTTP_PORT", "127.0.0.1") as listener,
        socket.create_connection(listener.getsockname()),
    ):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
