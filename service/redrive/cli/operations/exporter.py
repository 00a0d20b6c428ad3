"""redrive exporter."""

import logging
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import click
import psycopg

from redrive.cli.support.child import in_child
from redrive.cli.support.connection import wait_for_schema
from redrive.cli.support.options import database_option, settings_of_cells
from redrive.database.connections.address import Address
from redrive.observability.cells import CellStats
from redrive.observability.health import serve
from redrive.observability.logs import set_up
from redrive.observability.metrics import Exposition
from redrive.observability.stats import MAX_AGE_SECONDS, DatabaseStats
from redrive.worker import store

logger = logging.getLogger("redrive.exporter")


@click.command()
@database_option
@click.option(
    "--http-port",
    type=click.INT,
    help="Port of /metrics, /livez and /readyz. [env: REDRIVE_HTTP_PORT; default: 9808]",
)
def exporter(database_url: str | None, http_port: int | None) -> None:
    """Serve the metrics of the database, with or without workers.

    \b
    redrive exporter --http-port 9808

    With REDRIVE_DATABASES it serves the metrics of all cells, each with the label cell.
    """
    start = in_child(lambda: _start(database_url, http_port))
    set_up(start.log_format, start.log_level)

    # The exporter does not wait for cells: one that is away must not hide the others.
    single = start.databases.get(None)
    if single is not None:
        wait_for_schema(single, start.startup_timeout)

    tended = [
        _Tended(cell, DatabaseStats(address, start.disk_budget))
        for cell, address in start.databases.items()
    ]

    exposition = Exposition(None, _shown(tended).collect)
    port = serve(
        start.http_port,
        exposition.registry,
        live=lambda: {"process": None},
        ready=lambda: {"database": _fault(tended)},
    )
    click.echo(f"serving http://127.0.0.1:{port}/metrics", err=True)
    _tend_all(tended, _stop_signal())


class _Tended:
    """Database that the exporter tends. It logs the begin and the end of an outage."""

    def __init__(self, cell: str | None, stats: DatabaseStats) -> None:
        self.stats = stats
        self.cell = cell
        self._failing_since: float | None = None

    def keep(self) -> None:
        """Sample and fold the counters, which no process does while no worker is up."""
        now = time.monotonic()
        # After a failure, the link waits before it connects again.
        if now <= self.stats.link.retry_at:
            return

        try:
            with self.stats.exclusive() as conn:
                store.sample(conn)
                store.fold(conn)
                store.fold_series(conn)
        except psycopg.Error as error:
            self._failed(error, now)
        else:
            self._succeeded(now)

    def _failed(self, error: psycopg.Error, now: float) -> None:
        if self._failing_since is not None:
            return

        self._failing_since = now
        extra = {
            "cell": self.cell,
            "error": type(error).__name__,
            "sqlstate": error.sqlstate,
            "why": self.stats.link.fault,
        }
        logger.warning("database error", extra=extra)

    def _succeeded(self, now: float) -> None:
        if self._failing_since is None:
            return

        seconds = round(now - self._failing_since, 1)
        self._failing_since = None
        extra = {"cell": self.cell, "seconds": seconds}
        logger.info("the database answers again", extra=extra)


def _tend_all(tended: Sequence[_Tended], stop: threading.Event) -> None:
    """Read each database in a thread of its own, until told to stop.

    So a database that hangs does not delay the others.
    """
    first, *others = tended
    for each in others:
        threading.Thread(target=_tend, args=(each, stop), daemon=True).start()

    _tend(first, stop)


class _Start(NamedTuple):
    """Start-up values of the exporter.

    They are its settings, without the libraries that read them.
    """

    databases: Mapping[str | None, Address]
    """Databases by cell; None is the key without cells."""
    log_format: Literal["json", "console"] | None
    log_level: str
    http_port: int
    startup_timeout: float
    disk_budget: int


def _start(database_url: str | None, http_port: int | None) -> _Start:
    cells = settings_of_cells(database_url, http_port=http_port)
    of_all = cells[0]

    return _Start(
        databases={settings.cell: settings.address() for settings in cells},
        log_format=of_all.log_format,
        log_level=of_all.log_level,
        http_port=of_all.http_port,
        startup_timeout=of_all.startup_timeout,
        disk_budget=of_all.disk_budget_gib << 30,
    )


def _shown(tended: Sequence[_Tended]) -> DatabaseStats | CellStats:
    """Return the figures to serve, of all cells if there are any."""
    named: dict[str, DatabaseStats] = {}
    for each in tended:
        if each.cell:
            named[each.cell] = each.stats

    if not named:
        return tended[0].stats

    return CellStats(named)


def _fault(tended: Sequence[_Tended]) -> str | None:
    """Return why no database answers; None while there are figures to scrape."""
    faults = [each.stats.link.trouble() for each in tended]
    return faults[0] if all(faults) else None


def _tend(tended: _Tended, stop: threading.Event) -> None:
    """Read figures before each scrape, until told to stop."""
    while not stop.wait(MAX_AGE_SECONDS):
        tended.keep()
        tended.stats.read_ahead()


def _stop_signal() -> threading.Event:
    """Return an event that SIGTERM and Ctrl-C set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    return stop
