"""redrive console."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from redrive.cli.support.connection import wait_for_schema
from redrive.cli.support.options import cells_options
from redrive.handlers import load
from redrive.observability import tracing as tracing_of_process
from redrive.observability.logs import set_up
from redrive.settings import Settings

if TYPE_CHECKING:
    from redrive.extras.console.security.logins import Logins
    from redrive.extras.console.security.ways_in import Addresses


@click.command()
@cells_options("console_port")
@click.option(
    "--port",
    "console_port",
    type=click.INT,
    help="Port to serve on. [env: REDRIVE_CONSOLE_PORT; default: 9809]",
)
@click.option(
    "--demo", is_flag=True, help="Serve this machine only, without a sign-in."
)
def console(cells: Sequence[Settings], demo: bool) -> None:
    """Serve web pages and a JSON API to find and fix problems.

    \b
    redrive console --demo

    The console can do only what the database logins of its roles can do:
    REDRIVE_CONSOLE_VIEWER_URL and so on. docs/console.md says how users sign in. --demo
    uses the database of REDRIVE_DATABASE_URL. With REDRIVE_DATABASES, one console shows
    all cells.
    """
    settings = cells[0]
    set_up(settings.log_format, settings.log_level)
    from redrive.extras.console import app  # noqa: PLC0415 # an extra
    from redrive.extras.console.links import Links  # noqa: PLC0415 # an extra
    from redrive.extras.console.security import ways_in  # noqa: PLC0415 # an extra
    from redrive.observability.health import listen  # noqa: PLC0415 # a web server

    access, addresses = (ways_in.open_to_everybody if demo else ways_in.guarded)(cells)
    listener = listen(
        settings.console_port, "REDRIVE_CONSOLE_PORT", "127.0.0.1" if demo else ""
    )

    tracing = tracing_of_process.set_up() if tracing_of_process.is_asked_for() else None
    served = app.application(
        access,
        _logins(cells, addresses),
        load(settings.handlers) if settings.handlers else None,
        links=Links.read(settings.console_trace_url, settings.console_logs_url),
        tracing=tracing,
    )
    # Port 0 takes any free port, so the address is known only now.
    port = listener.getsockname()[1]
    click.echo(f"the console is at http://127.0.0.1:{port}", err=True)

    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises its signal again
        app.run(served, listener)

    if tracing is not None:
        tracing.shut_down()


def _logins(
    cells: Sequence[Settings], addresses: Sequence["Addresses"]
) -> "Logins | Mapping[str, Logins]":
    """Return the logins of one database, or of several by cell.

    This waits until their schemas exist.
    """
    from redrive.extras.console.security.logins import Logins  # noqa: PLC0415 # an extra

    if len(cells) == 1:
        wait_for_schema(next(iter(addresses[0].values())), cells[0].startup_timeout)
        return Logins(addresses[0])

    return {
        str(cell.cell): Logins(of) for cell, of in zip(cells, addresses, strict=True)
    }
