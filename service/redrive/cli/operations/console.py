"""redrive console."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from redrive.cli.support.connection import wait_for_schema
from redrive.cli.support.options import database_option, settings_of_cells
from redrive.database.address import Address
from redrive.errors import SettingsError
from redrive.handlers import load
from redrive.observability import tracing as tracing_of_process
from redrive.observability.logs import set_up
from redrive.settings import Settings

WAYS_IN = (
    "nobody could sign in to the console: set REDRIVE_CONSOLE_TOKENS, or REDRIVE_CONSOLE_GROUPS"
    " with REDRIVE_CONSOLE_OIDC_ISSUER or REDRIVE_CONSOLE_PROXIES;"
    " --demo leaves it open, on this machine alone"
)
LOCAL = {"localhost", "127.0.0.1", "::1"}
NO_LOGIN = (
    "no role of the console has a login: set REDRIVE_CONSOLE_VIEWER_URL,"
    " REDRIVE_CONSOLE_OPERATOR_URL or REDRIVE_CONSOLE_APPROVER_URL, each also as ..._FILE"
)
NO_GROUPS = (
    "nobody of the proxy or the provider has a role: set REDRIVE_CONSOLE_GROUPS, like"
    " oncall=operator,staff=viewer"
)
NO_EXTRA = "the console wants more packages: pip install 'redrive[console]'"


@click.command()
@database_option
@click.option(
    "--port",
    "console_port",
    type=click.INT,
    help="Where it is served. [env: REDRIVE_CONSOLE_PORT; default: 9809]",
)
@click.option("--demo", is_flag=True, help="Without a sign-in, for this machine alone.")
def console(database_url: str | None, console_port: int | None, demo: bool) -> None:
    """Serve pages and a JSON API: what is wrong, and why; act on it.

    \b
    redrive console --demo

    Who may do what is up to the logins of its roles, REDRIVE_CONSOLE_VIEWER_URL and so on: it can
    do nothing that they cannot. docs/console.md tells how people sign in. The database of --demo is
    REDRIVE_DATABASE_URL. With REDRIVE_DATABASES it is one console of all cells.
    """
    cells = settings_of_cells(database_url, console_port=console_port)
    settings = cells[0]
    set_up(settings.log_format, settings.log_level)
    try:
        from redrive.console.app import application, listen, run  # noqa: PLC0415 # an extra
        from redrive.console.links import Links  # noqa: PLC0415 # an extra
    except ModuleNotFoundError as error:
        if error.name in {"fastapi", "itsdangerous", "jinja2", "starlette"}:
            raise SettingsError(NO_EXTRA) from None
        raise
    access, addresses = (_open if demo else _guarded)(cells)
    links = Links.read(settings.console_trace_url, settings.console_logs_url)
    host = "127.0.0.1" if demo else ""
    listener = listen(host, settings.console_port)
    logins = _logins(cells, addresses)
    handlers = load(settings.handlers) if settings.handlers else None
    tracing = tracing_of_process.set_up() if tracing_of_process.is_asked_for() else None
    app = application(access, logins, handlers, links=links, tracing=tracing)
    click.echo(
        f"the console is at http://127.0.0.1:{listener.getsockname()[1]}", err=True
    )
    with contextlib.suppress(
        KeyboardInterrupt
    ):  # uvicorn re-raises the signal that ended it
        run(app, listener)
    if tracing is not None:
        tracing.shut_down()


Addresses = Mapping[Any, Address]
"""Maps a role to the address of its login."""


def _logins(cells: Sequence[Settings], addresses: Sequence[Addresses]) -> Any:
    """Return the logins of one database, or of several by cell.

    This waits until their schemas exist.
    """
    from redrive.console.security.logins import Logins  # noqa: PLC0415 # an extra

    if len(cells) == 1:
        wait_for_schema(next(iter(addresses[0].values())), cells[0].startup_timeout)
        return Logins(addresses[0])
    return {
        str(cell.cell): Logins(of) for cell, of in zip(cells, addresses, strict=True)
    }


def _open(cells: Sequence[Settings]) -> tuple[Any, Sequence[Addresses]]:
    """Open a console without sign-in.

    Every user of this machine acts as the user that started it.
    """
    from redrive.console.security.access import Access, Principal, Role  # noqa: PLC0415 # an extra

    me = Principal(cells[0].who(), Role.OPERATOR)
    return Access(everybody=me), [{Role.OPERATOR: cell.address()} for cell in cells]


def _guarded(cells: Sequence[Settings]) -> tuple[Any, Sequence[Addresses]]:
    """Return the sign-in methods, and for each database a login for each role.

    Raises:
        SettingsError: there is no sign-in method, or one gives no access.
    """
    from redrive.console.security import access  # noqa: PLC0415 # an extra

    settings = cells[0]
    addresses = [_addresses(cell, access.Role) for cell in cells]
    tokens = access.Tokens(settings.console_tokens) if settings.console_tokens else None
    groups = access.group_roles(settings.console_groups or "")
    proxy, provider = _proxy(settings, groups), _provider(settings, groups)
    if not (tokens or proxy or provider):
        raise SettingsError(WAYS_IN)
    if (proxy or provider) and not groups:
        raise SettingsError(NO_GROUPS)
    wanted = (
        {token.role for token in tokens.read().values()}
        if tokens
        else set[access.Role]()
    )
    _require(
        wanted | set(groups.values()),
        settings,
        {role for one in addresses for role in one},
    )
    key = _secret(
        "REDRIVE_CONSOLE_KEY", settings.console_key, settings.console_key_file, 32
    )
    ways = access.Access(tokens=tokens, proxy=proxy, provider=provider, key=key)
    return ways, addresses


def _require(
    roles: Collection[Any], settings: Settings, there_are: Collection[Any]
) -> None:
    """Check that each assigned role has a login in some database.

    Raises SettingsError.
    """
    for role in sorted(set(roles) - set(there_are)):
        name = f"REDRIVE_CONSOLE_{role.name}_URL is not set"
        if settings.databases:
            name = f"no cell of REDRIVE_DATABASES has console.{role.word}"
        msg = f"somebody is an {role.word} of the console, and {name}"
        raise SettingsError(msg)


def _addresses(settings: Settings, roles: Collection[Any]) -> Addresses:
    """Return the address of the database for each role that has a login.

    Raises:
        SettingsError: no role has a login, one cannot be read, or one is set twice.
    """
    own = {role: found for role in roles if (found := _address(settings, role.word))}
    if not settings.databases:
        if not own:
            raise SettingsError(NO_LOGIN)
        return own
    if own:
        name = f"REDRIVE_CONSOLE_{min(own).name}_URL"
        msg = f"{name} is of one database, and REDRIVE_DATABASES has cells; set one of them"
        raise SettingsError(msg)
    (cell,) = settings.cells()
    if not cell.console:
        hint = "give it some in REDRIVE_DATABASES, like console: {operator: {url_file: ...}}"
        msg = f"no role of the console has a login to cell {cell.name}: {hint}"
        raise SettingsError(msg)
    for address in cell.console.values():
        address.read()
    return {
        role: cell.console[role.word] for role in roles if role.word in cell.console
    }


def _address(settings: Settings, role: str) -> Address | None:
    """Return the address of the database for a role; None if the role has no login."""
    variable = f"REDRIVE_CONSOLE_{role.upper()}_URL"
    values = settings.model_dump()
    url, file = values[f"console_{role}_url"], values[f"console_{role}_url_file"]
    if url is None and file is None:
        return None
    found = (
        Address(url, variable=variable)
        if url
        else Address(file=file, variable=variable)
    )
    found.read()
    return found


def _proxy(settings: Settings, groups: Mapping[str, Any]) -> Any:
    from redrive.console.security import access  # noqa: PLC0415 # an extra

    if not settings.console_proxies:
        return None
    return access.Proxy(
        access.networks(settings.console_proxies),
        groups,
        settings.console_user_header.lower(),
        settings.console_groups_header.lower(),
    )


def _provider(settings: Settings, groups: Mapping[str, Any]) -> Any:
    """Return the identity provider for sign-in; None = there is none.

    Raises:
        SettingsError: a value that it needs is missing, or an address is neither https
            nor local.
    """
    issuer, client_id = settings.console_oidc_issuer, settings.console_oidc_client_id
    if issuer is None:
        return None
    from redrive.console.security.access import CALLBACK  # noqa: PLC0415 # an extra
    from redrive.console.security.oidc import Client, Provider  # noqa: PLC0415 # an extra

    ours = _safe("REDRIVE_CONSOLE_URL", settings.console_url).rstrip("/")
    _safe("REDRIVE_CONSOLE_OIDC_ISSUER", issuer)
    if client_id is None:
        msg = "REDRIVE_CONSOLE_OIDC_ISSUER is set and REDRIVE_CONSOLE_OIDC_CLIENT_ID is not"
        raise SettingsError(msg)
    if "openid" not in settings.console_oidc_scopes.split():
        msg = f"REDRIVE_CONSOLE_OIDC_SCOPES is {settings.console_oidc_scopes!r}; it must hold openid"
        raise SettingsError(msg)
    if urlsplit(ours).path:
        msg = f"REDRIVE_CONSOLE_URL is {ours!r}; it must have no path: leave it out"
        raise SettingsError(msg)
    secret, file = (
        settings.console_oidc_client_secret,
        settings.console_oidc_client_secret_file,
    )
    return Provider(
        Client(
            issuer,
            client_id,
            _secret("REDRIVE_CONSOLE_OIDC_CLIENT_SECRET", secret, file, 1),
            ours + CALLBACK,
            settings.console_oidc_scopes,
            settings.console_oidc_user_claim,
            settings.console_oidc_groups_claim,
        ),
        groups,
    )


def _safe(variable: str, url: str | None) -> str:
    """Return an address that begins with https:// or is on this machine.

    So its traffic cannot be read on the way.

    Raises:
        SettingsError: the address is missing or is of another kind.
    """
    with contextlib.suppress(ValueError):
        parts = urlsplit(url or "")
        if (
            url
            and parts.hostname
            and (parts.scheme == "https" or parts.hostname in LOCAL)
        ):
            return url
    held = (
        f"is {url!r}" if url else "is not set, and the provider sends people back to it"
    )
    msg = f"{variable} {held}; it must begin with https://, or on this machine http://localhost"
    raise SettingsError(msg)


def _secret(
    variable: str, value: str | None, file: Path | None, least: int
) -> str | None:
    """Return a secret from its variable or its file.

    Raises:
        SettingsError: the file cannot be read, or the secret is too short.
    """
    if value is not None or file is None:
        return value
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    if len(text) < least:
        msg = f"{variable}_FILE is {file}; it must hold text of {least} characters or more"
        raise SettingsError(msg)
    return text
