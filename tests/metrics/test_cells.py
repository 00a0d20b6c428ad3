"""One exporter of several databases: a label apart, and none waits for another."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from redrive.database.embedded import free_port
from redrive.observability import cells as shown
from redrive.observability.cells import CellStats
from redrive.observability.stats import DatabaseStats
from tests.flow.harness import wait_for
from tests.postgres import Database, Server

UP = 'redrive_stats_up{cell="%s"} %s.0'
READY = 'redrive_queue_depth{cell="%s",queue="mail",state="ready"} %s.0'


@pytest.fixture
def three(server: Server) -> Iterator[dict[str, Database]]:
    """Cells with one, two and three jobs."""
    with contextlib.ExitStack() as stack:
        cells = {
            name: stack.enter_context(server.database()) for name in ("eu", "us", "ap")
        }
        for n, database in enumerate(cells.values(), 1):
            database.rows(
                "select redrive.enqueue('a', queue => 'mail') from generate_series(1, %s)",
                n,
            )
        yield cells


def test_a_cell_that_hangs_is_down_and_the_others_are_shown(
    three: dict[str, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown, "PATIENCE_SECONDS", 2.0)
    registry = CollectorRegistry(auto_describe=False)
    readers = {cell: DatabaseStats(database.url) for cell, database in three.items()}
    for stats in readers.values():
        list(stats.collect())
        stats.read_ahead()  # so that what is there is shown at once
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as silent:  # takes what connects, and says nothing
        port = silent.getsockname()[1]
        readers["sa"] = DatabaseStats(
            f"postgresql://u:p4ss@127.0.0.1:{port}/x?connect_timeout=60"
        )
        registry.register(CellStats(readers))
        text = wait_for(lambda: _shown(registry, three))
        assert "cell" in {thread.name for thread in threading.enumerate()}, (
            "it is still waited for"
        )
    for cell in three:
        readers[cell].link.close()

    lines = text.splitlines()
    assert {UP % ("eu", 1), UP % ("us", 1), UP % ("ap", 1), UP % ("sa", 0)} <= set(
        lines
    )
    assert {READY % ("eu", 1), READY % ("us", 2), READY % ("ap", 3)} <= set(lines)
    assert [line for line in lines if 'cell="sa"' in line] == [UP % ("sa", 0)]
    assert "p4ss" not in text
    typed = Counter(line.split()[2] for line in lines if line.startswith("# TYPE"))
    assert set(typed.values()) == {1}, "a family of all cells is one"
    samples = [
        s for family in text_string_to_metric_families(text) for s in family.samples
    ]
    assert {"cell" in sample.labels for sample in samples} == {True}


def test_the_exporter_shows_all_cells_of_its_file(
    three: dict[str, Database], tmp_path: Path
) -> None:
    cells = {name: database.url for name, database in three.items()} | {
        "sa": "host=127.0.0.1 port=1"
    }
    path, port = tmp_path / "cells.json", free_port()
    path.write_text(
        json.dumps([{"name": name, "url": url} for name, url in cells.items()])
    )
    command = [sys.executable, "-m", "redrive", "exporter", "--http-port", str(port)]
    environment = os.environ | {"REDRIVE_DATABASES": str(path)}
    page = ""

    def is_read() -> bool:
        nonlocal page
        with contextlib.suppress(OSError):
            page = _get(port, "metrics")
        return all(READY % (cell, n) in page for n, cell in enumerate(three, 1))

    with subprocess.Popen(
        command, env=environment, stderr=subprocess.DEVNULL
    ) as exporter:
        try:
            wait_for(is_read)
            ready = _get(port, "readyz")
        finally:
            exporter.terminate()

    assert UP % ("sa", 0) in page
    assert ready == "database: ok\n", "one cell is down, the exporter is not"


def _shown(registry: CollectorRegistry, cells: dict[str, Database]) -> str | None:
    """Return a scrape, or None if a busy machine kept one of these cells from it."""
    text = generate_latest(registry).decode()
    is_whole = all(READY % (cell, n) in text for n, cell in enumerate(cells, 1))
    return text if is_whole else None


def _get(port: int, name: str) -> str:
    with urlopen(f"http://127.0.0.1:{port}/{name}", timeout=300) as answer:
        return str(answer.read().decode())
