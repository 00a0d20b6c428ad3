"""python -m bench.cell_faults: eight cells, and four that fail. Three minutes, as root on Linux.

Each cell is a small Postgres server of its own, with one worker and a producer that enqueues at a
steady rate. All eight work. Then one is frozen (SIGSTOP), one is gone (SIGKILL), one has a full disk,
and one restarts for an upgrade, all at once. The table has the p99 of the pick-up of the other four,
before and during the faults, and how long the operator's commands, the exporter and the console take
to answer. It also shows what an enqueue into the full cell does.
"""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg

from bench import usage
from bench.install import Peers
from bench.report import machine
from bench.scenarios import Lab, latencies
from bench.server import SETTINGS, Server
from bench.session import Session
from bench.systems import REDRIVE
from redrive.database.embedded import EmbeddedPostgres
from redrive.enqueue import enqueue

NAMES = ("c1", "c2", "c3", "c4", "frozen", "gone", "full", "upgraded")
WELL = NAMES[:4]
SMALL = {"shared_buffers": "16MB", "max_wal_size": "64MB", "max_connections": "60"}
DISK = "300m"
PORT, CONSOLE_PORT = 9871, 9872
TOKEN = "a-token-of-the-bench"
PAGES = (
    "/",
    "/cells/c1/",
    "/cells/c1/queues",
    "/cells/frozen/queues",
    "/cells/full/queues",
)
"""Pages of the console: all cells, two of one that works, and one of two that do not."""
SILENT = "The database does not answer."


@contextlib.contextmanager
def disk(scratch: Path) -> Iterator[Path]:
    """Mount a small disk."""
    home = scratch / "disk"
    home.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", home], check=True
    )
    try:
        yield home
    finally:
        subprocess.run(["umount", "--lazy", home], check=True)


@contextlib.contextmanager
def cells(scratch: Path) -> Iterator[dict[str, tuple[EmbeddedPostgres, Session]]]:
    """Start all cells, each with a worker."""
    with contextlib.ExitStack() as stack:
        found: dict[str, tuple[EmbeddedPostgres, Session]] = {}
        for name in NAMES:
            home = (
                stack.enter_context(disk(scratch)) if name == "full" else scratch / name
            )
            home.mkdir(exist_ok=True)
            home.chmod(0o755)
            postgres = EmbeddedPostgres(home, settings=SETTINGS | SMALL)
            postgres.start()
            stack.callback(postgres.remove)
            lab = Lab(Server(postgres), Peers(scratch / f"{name}-peers"), 1.0)
            found[name] = postgres, stack.enter_context(lab.session(REDRIVE))
        for _, at in found.values():
            at.start_workers(1, {"slots": 8})
            at.wait_for("run", 60)
        yield found


def pick_up(found: dict[str, tuple[EmbeddedPostgres, Session]], seconds: float) -> str:
    """Return the p99 of the pick-up in each of the cells that work, in milliseconds."""

    def load(name: str) -> float:
        at = found[name][1]
        at.start_producer("load", seconds, 20)
        return latencies(at, seconds + 3, None, skip=20)["p99_ms"]

    with ThreadPoolExecutor(len(WELL)) as pool:
        return ", ".join(f"{p99:.0f}" for p99 in pool.map(load, WELL))


def break_them(found: dict[str, tuple[EmbeddedPostgres, Session]]) -> None:
    """Let four cells fail in four ways."""
    frozen = Server(found["frozen"][0]).pid
    for pid in (frozen, *usage.children(frozen)):
        os.kill(pid, signal.SIGSTOP)
    os.kill(Server(found["gone"][0]).pid, signal.SIGKILL)
    with (
        contextlib.suppress(OSError),  # also of the flush when the file is closed
        (found["full"][0].data.parent / "filler").open("wb") as filler,
    ):
        while True:
            filler.write(b"\0" * 65_536)
    found["upgraded"][0].stop()


def upgrade(postgres: EmbeddedPostgres, seconds: float) -> None:
    """Start the server again after a while, as after pg_upgrade, and migrate."""
    time.sleep(seconds)
    postgres.start()


def timed(*command: str, file: Path) -> str:
    """Run a command of the operator; return its exit code, its seconds, and whom it names."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "redrive", *command],
        env=os.environ | {"REDRIVE_DATABASES": str(file)},
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.monotonic() - began
    named = [name for name in NAMES if f"cell {name}:" in done.stderr]
    return f"{took:.1f} s, exit {done.returncode}, names {', '.join(named) or 'none'}"


def scrape() -> str:
    """Scrape the exporter; return its seconds, and which cells it says are down."""
    began = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=60) as page:
        text = page.read().decode()
    took = time.monotonic() - began
    down = [name for name in NAMES if f'redrive_stats_up{{cell="{name}"}} 0' in text]
    return f"{took:.1f} s, down {', '.join(down) or 'none'}"


def page(path: str) -> str:
    """Load a page of the console as a viewer; return seconds, status, and each cell's card."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{CONSOLE_PORT}{path}",
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, ""
    except OSError as error:
        return f"{time.monotonic() - began:.1f} s, {error}"
    took = f"{time.monotonic() - began:.1f} s, status {status}"
    return took if path != "/" else f"{took}, {_cards(text)}"


def _cards(text: str) -> str:
    """Return which cells a page of all cells shows with figures, and which as silent."""
    cards = {name: text.partition(f'id="cell-{name}"')[2] for name in NAMES}
    cards = {name: card.partition("</section>")[0] for name, card in cards.items()}
    silent = [name for name, card in cards.items() if SILENT in card]
    shown = [name for name, card in cards.items() if 'class="figures"' in card]
    return f"silent {', '.join(silent) or 'none'}; with figures {', '.join(shown)}"


def load_pages(when: str) -> None:
    """Print how each page of the console loads; the page of all cells again at the end."""
    for path in (*PAGES, "/"):
        print(f"console {path} {when}:", page(path), flush=True)


def enqueue_into(at: Session) -> str:
    """Enqueue 100 jobs, each in its own transaction; return how many succeed in 30 seconds."""
    began, errors, done = time.monotonic(), set[str](), 0
    for _ in range(100):
        if time.monotonic() > began + 30:
            break
        try:
            with psycopg.connect(
                at.server.url_of(at.database), connect_timeout=5
            ) as conn:
                enqueue(conn, "noop", {"s": "x" * 1_000})
        except psycopg.Error as error:
            errors.add(f"{type(error).__name__} {error.sqlstate}")
        else:
            done += 1
    took = time.monotonic() - began
    return f"{done} of 100 in {took:.1f} s, errors: {', '.join(errors) or 'none'}"


@contextlib.contextmanager
def program(*command: str, **settings: str) -> Iterator[None]:
    """Run a command of Redrive for all cells meanwhile."""
    running = subprocess.Popen(
        [sys.executable, "-m", "redrive", *command],
        env=os.environ | settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        running.kill()
        running.wait()


def wait_for_console() -> None:
    """Wait until the console answers."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{CONSOLE_PORT}/livez", timeout=5)
            return
        time.sleep(0.2)


def main() -> int:
    """Measure, and print the table. Returns the exit status."""
    print(json.dumps(machine()))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        scratch = Path(home)
        scratch.chmod(0o755)
        with cells(scratch) as found:
            file = scratch / "cells.json"
            urls = {
                name: at.server.url_of(at.database) for name, (_, at) in found.items()
            }
            logins = {
                name: {"viewer": {"url": url, "role": "redrive_viewer"}}
                for name, url in urls.items()
            }
            lines = [
                {"name": name, "url": url, "console": logins[name]}
                for name, url in urls.items()
            ]
            file.write_text(json.dumps(lines))
            tokens = scratch / "tokens"
            digest = hashlib.sha256(TOKEN.encode()).hexdigest()
            tokens.write_text(f"{digest} viewer vera\n")
            with (
                program(
                    "exporter", REDRIVE_DATABASES=str(file), REDRIVE_HTTP_PORT=str(PORT)
                ),
                program(
                    "console",
                    REDRIVE_DATABASES=str(file),
                    REDRIVE_CONSOLE_PORT=str(CONSOLE_PORT),
                    REDRIVE_CONSOLE_TOKENS=str(tokens),
                ),
            ):
                wait_for_console()
                measure(found, file)
    return 0


def measure(found: dict[str, tuple[EmbeddedPostgres, Session]], file: Path) -> None:
    """Print the figures of all cells at work, then of four that fail."""
    print("p99 before, ms:", pick_up(found, 20))
    print("exporter before:", scrape())
    load_pages("before")
    print("load:", os.getloadavg())
    print("queue ls before:", timed("queue", "ls", file=file))
    break_them(found)
    later = threading.Thread(target=upgrade, args=(found["upgraded"][0], 25))
    later.start()
    with ThreadPoolExecutor(1) as pool:
        during = pool.submit(pick_up, found, 25)
        load_pages("during")
        for command in (
            ("queue", "ls"),
            ("worker", "ls"),
            ("dlq", "groups"),
            ("check",),
        ):
            print(f"{' '.join(command)} during:", timed(*command, file=file))
        print("exporter during:", scrape())
        print("load:", os.getloadavg())
        print("p99 during, ms:", during.result())
    load_pages("during, again")
    print("enqueues into the full cell:", enqueue_into(found["full"][1]))
    later.join()
    print("queue ls after the upgrade:", timed("queue", "ls", file=file))
    print("exporter after the upgrade:", scrape())
    frozen = Server(found["frozen"][0]).pid
    for pid in (frozen, *usage.children(frozen)):
        os.kill(pid, signal.SIGCONT)
    (found["full"][0].data.parent / "filler").unlink()
    print("queue ls after frozen and full are mended:", timed("queue", "ls", file=file))
    print("enqueues into the mended cell:", enqueue_into(found["full"][1]))
    load_pages("after frozen and full are mended")


if __name__ == "__main__":
    raise SystemExit(main())
