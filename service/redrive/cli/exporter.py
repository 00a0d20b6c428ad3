"""redrive exporter."""

import contextlib
import signal
import threading
import time

import click
import psycopg

from redrive.cli.connection import trouble_of, wait_for_schema
from redrive.cli.options import database_option, settings_for
from redrive.observability.health import serve
from redrive.observability.logs import set_up
from redrive.observability.metrics import Exposition
from redrive.observability.stats import MAX_AGE_SECONDS, DatabaseStats
from redrive.worker import store


@click.command()
@database_option
@click.option(
    "--http-port",
    type=click.INT,
    help="/metrics /livez /readyz. [env: REDRIVE_HTTP_PORT; default: 9808]",
)
def exporter(database_url: str | None, http_port: int | None) -> None:
    """Serve the figures of the database, with or without workers.

    \b
    redrive exporter --http-port 9808
    """
    settings = settings_for(database_url, http_port=http_port)
    set_up(settings.log_format, settings.log_level)
    wait_for_schema(settings.address(), settings.startup_timeout)
    stats = DatabaseStats(settings.address())
    port = _serve(settings.http_port, stats)
    click.echo(f"serving http://127.0.0.1:{port}/metrics", err=True)
    stop = _stop_signal()
    while not stop.wait(MAX_AGE_SECONDS):
        _keep(stats)
        stats.read_ahead()


def _serve(port: int, stats: DatabaseStats) -> int:
    """Answer probes and scrapes, from threads of their own. Returns the port."""
    exposition = Exposition(None, stats.collect)

    def ready() -> dict[str, str | None]:
        return {"database": trouble_of(stats.link.failures, stats.link.fault)}

    return serve(port, exposition.registry, live=lambda: {"process": None}, ready=ready)


def _stop_signal() -> threading.Event:
    """What SIGTERM and Ctrl-C set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    return stop


def _keep(stats: DatabaseStats) -> None:
    """With no worker up nobody else samples the counters each minute, or folds them."""
    if time.monotonic() <= stats.link.retry_at:
        return
    with contextlib.suppress(psycopg.Error), stats.exclusive() as conn:
        store.sample(conn)
        store.fold(conn)
