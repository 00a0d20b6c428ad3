"""redrive console."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from redrive.cli.connection import wait_for_schema
from redrive.cli.options import database_option, settings_for
from redrive.database.connect import Address
from redrive.errors import SettingsError
from redrive.handlers import load
from redrive.observability import tracing as tracing_of_process
from redrive.observability.logs import set_up
from redrive.settings import Settings

WAYS_IN = (
    "nobody could sign in to the console: set REDRIVE_CONSOLE_TOKENS, or REDRIVE_CONSOLE_PROXIES"
    " with REDRIVE_CONSOLE_GROUPS; --demo leaves it open, on this machine alone"
)
NO_LOGIN = (
    "no role of the console has a login: set REDRIVE_CONSOLE_VIEWER_URL,"
    " REDRIVE_CONSOLE_OPERATOR_URL or REDRIVE_CONSOLE_APPROVER_URL, each also as ..._FILE"
)
NO_EXTRA = "the console wants more packages: pip install 'redrive[console]'"


@click.command()
@database_option
@click.option(
    "--port",
    type=click.INT,
    help="Where it is served. [env: REDRIVE_CONSOLE_PORT; default: 9809]",
)
@click.option("--demo", is_flag=True, help="Without a sign-in, for this machine alone.")
def console(database_url: str | None, port: int | None, demo: bool) -> None:
    """Serve pages and a JSON API: what is wrong, and why; act on it.

    \b
    redrive console --demo

    Who may do what is up to the logins of its roles, REDRIVE_CONSOLE_VIEWER_URL and so on: it can
    do nothing that they cannot. docs/console.md tells how people sign in. The database of --demo is
    REDRIVE_DATABASE_URL.
    """
    settings = settings_for(database_url, console_port=port)
    set_up(settings.log_format, settings.log_level)
    try:
        from redrive.console.app import application, listen, run  # noqa: PLC0415 # an extra
        from redrive.console.links import Links  # noqa: PLC0415 # an extra
    except ModuleNotFoundError as error:
        if error.name in {"fastapi", "itsdangerous", "jinja2", "starlette"}:
            raise SettingsError(NO_EXTRA) from None
        raise
    access, logins = (_open if demo else _guarded)(settings)
    links = Links.read(settings.console_trace_url, settings.console_logs_url)
    host = "127.0.0.1" if demo else ""
    listener = listen(host, settings.console_port)
    wait_for_schema(next(iter(logins.values())), settings.startup_timeout)
    handlers = load(settings.handlers) if settings.handlers else None
    tracing = tracing_of_process.set_up() if tracing_of_process.is_asked_for() else None
    app = application(access, _logins(logins), handlers, links=links, tracing=tracing)
    click.echo(f"the console is at http://127.0.0.1:{listener.getsockname()[1]}", err=True)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn hands on the signal that ended it
        run(app, listener)
    if tracing is not None:
        tracing.shut_down()


def _logins(addresses: Mapping[Any, Address]) -> Any:
    from redrive.console.logins import Logins  # noqa: PLC0415 # an extra

    return Logins(addresses)


def _open(settings: Settings) -> tuple[Any, Mapping[Any, Address]]:
    """No sign-in: everybody on this machine is whoever started it."""
    from redrive.console.access import Access, Identity, Role  # noqa: PLC0415 # an extra

    me = Identity(settings.who(), Role.OPERATOR)
    return Access(everybody=me), {Role.OPERATOR: settings.address()}


def _guarded(settings: Settings) -> tuple[Any, Mapping[Any, Address]]:
    """Ways in, and a login for each role.

    Raises:
        SettingsError: there is no way in, or one that leads nowhere.
    """
    from redrive.console import access  # noqa: PLC0415 # an extra

    addresses = {role: found for role in access.Role if (found := _address(settings, role.word))}
    if not addresses:
        raise SettingsError(NO_LOGIN)
    tokens = access.Tokens(settings.console_tokens) if settings.console_tokens else None
    proxy = _proxy(settings)
    if tokens is None and proxy is None:
        raise SettingsError(WAYS_IN)
    wanted = {token.role for token in tokens.read().values()} if tokens else set[access.Role]()
    wanted |= set(proxy.groups.values()) if proxy else set()
    for role in sorted(wanted - addresses.keys()):
        name = f"REDRIVE_CONSOLE_{role.name}_URL"
        msg = f"somebody is an {role.word} of the console, and {name} is not set"
        raise SettingsError(msg)
    key = _secret(settings.console_key, settings.console_key_file)
    return access.Access(tokens=tokens, proxy=proxy, key=key), addresses


def _address(settings: Settings, role: str) -> Address | None:
    """Where the database is for a role; None = it has no login."""
    variable = f"REDRIVE_CONSOLE_{role.upper()}_URL"
    values = settings.model_dump()
    url, file = values[f"console_{role}_url"], values[f"console_{role}_url_file"]
    if url is None and file is None:
        return None
    found = Address(url, variable=variable) if url else Address(file=file, variable=variable)
    found.read()
    return found


def _proxy(settings: Settings) -> Any:
    from redrive.console import access  # noqa: PLC0415 # an extra

    if not settings.console_proxies:
        return None
    groups = access.group_roles(settings.console_groups or "")
    if not groups:
        msg = "REDRIVE_CONSOLE_PROXIES is set and REDRIVE_CONSOLE_GROUPS is not: nobody has a role"
        raise SettingsError(msg)
    return access.Proxy(
        access.networks(settings.console_proxies),
        groups,
        settings.console_user_header.lower(),
        settings.console_groups_header.lower(),
    )


def _secret(value: str | None, file: Path | None) -> str | None:
    """A secret from its variable or its file.

    Raises:
        SettingsError: the file cannot be read, or holds too little.
    """
    if value is not None or file is None:
        return value
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    if len(text) < 32:  # noqa: PLR2004 # as the variable
        msg = f"REDRIVE_CONSOLE_KEY_FILE is {file}; it must hold text of 32 characters or more"
        raise SettingsError(msg)
    return text
