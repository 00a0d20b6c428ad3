"""Ways to sign in and the logins of the roles, as the settings give them."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from redrive.database.connections.address import Address
from redrive.errors import SettingsError
from redrive.extras.console.security.access import (
    CALLBACK,
    Access,
    Principal,
    Provider,
    Proxy,
    Role,
    Tokens,
    group_roles,
    networks,
    tokens_of,
)
from redrive.settings import Settings

WAYS_IN = (
    "nobody could sign in to the console: set REDRIVE_CONSOLE_TOKENS, or REDRIVE_CONSOLE_GROUPS"
    " with REDRIVE_CONSOLE_OIDC_ISSUER or REDRIVE_CONSOLE_PROXIES;"
    " --demo needs no sign-in, and serves this machine only"
)
LOCAL = {"localhost", "127.0.0.1", "::1"}
NO_LOGIN = (
    "no role of the console has a login: set REDRIVE_CONSOLE_VIEWER_URL,"
    " REDRIVE_CONSOLE_OPERATOR_URL or REDRIVE_CONSOLE_APPROVER_URL, each also as ..._FILE"
)
NO_GROUPS = (
    "no user of the proxy or the provider has a role: set REDRIVE_CONSOLE_GROUPS, such as"
    " oncall=operator,staff=viewer"
)


Addresses = Mapping[Role, Address]
"""Maps a role to the address of its login."""


def open_to_everybody(cells: Sequence[Settings]) -> tuple[Access, Sequence[Addresses]]:
    """Open a console without sign-in.

    Every user of this machine acts as the user that started it.
    """
    name = cells[0].who()
    access = Access(everybody=Principal(name, Role.OPERATOR))
    return access, [{Role.OPERATOR: cell.address()} for cell in cells]


def guarded(cells: Sequence[Settings]) -> tuple[Access, Sequence[Addresses]]:
    """Return the sign-in methods, and for each database a login for each role.

    Raises:
        SettingsError: there is no sign-in method, or one gives no access.
    """
    settings = cells[0]
    addresses = [_addresses(cell) for cell in cells]

    tokens = tokens_of(settings.console_tokens)
    groups = group_roles(settings.console_groups or "")
    proxy = proxy_of(settings)
    provider = _provider(settings)
    _require_way_in(tokens, proxy or provider, groups)

    assigned = {*groups.values()}
    if tokens:
        assigned |= {token.role for token in tokens.read().values()}

    _require(assigned, settings, addresses)
    key = _secret(
        "REDRIVE_CONSOLE_KEY",
        value=settings.console_key,
        file=settings.console_key_file,
        least=32,
    )

    methods = Access(
        tokens=tokens, proxy=proxy, provider=provider, groups=groups, key=key
    )

    return methods, addresses


def _require_way_in(
    tokens: Tokens | None, users: Proxy | Provider | None, groups: Mapping[str, Role]
) -> None:
    """Check that users can sign in, and that groups have roles."""
    if not (tokens or users):
        raise SettingsError(WAYS_IN)
    if users and not groups:
        raise SettingsError(NO_GROUPS)


def _require(
    assigned: Collection[Role], settings: Settings, addresses: Sequence[Addresses]
) -> None:
    """Check that each assigned role has a login in some database.

    Raises SettingsError.
    """
    with_login = {role for logins in addresses for role in logins}
    for role in sorted({*assigned} - with_login):
        fault = f"REDRIVE_CONSOLE_{role.name}_URL is not set"
        if settings.databases:
            fault = f"no cell of REDRIVE_DATABASES has console.{role.word}"
        msg = f"somebody is an {role.word} of the console, but {fault}"
        raise SettingsError(msg)


def _addresses(settings: Settings) -> Addresses:
    """Return the address of the database for each role that has a login.

    Raises:
        SettingsError: no role has a login, one cannot be read, or one is set twice.
    """
    own = {role: _address(settings, role.word) for role in Role}
    own = {role: address for role, address in own.items() if address}

    if settings.databases:
        return _addresses_of_cell(settings, own)
    if not own:
        raise SettingsError(NO_LOGIN)

    return own


def _addresses_of_cell(settings: Settings, own: Addresses) -> Addresses:
    if own:
        name = f"REDRIVE_CONSOLE_{min(own).name}_URL"
        msg = f"{name} is for one database, and REDRIVE_DATABASES has cells; set one of the two"
        raise SettingsError(msg)

    (cell,) = settings.cells()
    if not cell.console:
        hint = "give it some in REDRIVE_DATABASES, such as console: {operator: {url_file: ...}}"
        msg = f"no role of the console has a login to cell {cell.name}: {hint}"
        raise SettingsError(msg)

    # A file that cannot be read is an error at the start, and not of the first page.
    for address in cell.console.values():
        address.read()

    known = [role for role in Role if role.word in cell.console]
    return {role: cell.console[role.word] for role in known}


def _address(settings: Settings, role: str) -> Address | None:
    """Return the address of the database for a role; None if the role has no login."""
    variable = f"REDRIVE_CONSOLE_{role.upper()}_URL"
    values = settings.model_dump()
    url = values[f"console_{role}_url"]
    file = values[f"console_{role}_url_file"]

    if url is None and file is None:
        return None

    if url:
        found = Address(url, variable=variable)
    else:
        found = Address(file=file, variable=variable)

    # Refuse a wrong URL or file at the start, and not at the first page.
    found.read()
    return found


def proxy_of(settings: Settings) -> Proxy | None:
    """Return the proxy that signs users in; None if none is trusted."""
    if not settings.console_proxies:
        return None

    return Proxy(
        networks=networks(settings.console_proxies),
        user_header=settings.console_user_header.lower(),
        groups_header=settings.console_groups_header.lower(),
    )


def _provider(settings: Settings) -> Provider | None:
    """Return the identity provider for sign-in; None = no such sign-in.

    Raises:
        SettingsError: a setting is missing, or an address is neither https nor local.
    """
    issuer = settings.console_oidc_issuer
    if issuer is None:
        return None

    from redrive.extras.console.security.oidc import Client, Provider  # noqa: PLC0415 # an extra

    own_url = _safe("REDRIVE_CONSOLE_URL", settings.console_url).rstrip("/")
    _safe("REDRIVE_CONSOLE_OIDC_ISSUER", issuer)
    client_id = _check_provider(settings, own_url)

    secret = _secret(
        "REDRIVE_CONSOLE_OIDC_CLIENT_SECRET",
        value=settings.console_oidc_client_secret,
        file=settings.console_oidc_client_secret_file,
        least=1,
    )

    client = Client(
        issuer=issuer,
        client_id=client_id,
        client_secret=secret,
        redirect=own_url + CALLBACK,
        scopes=settings.console_oidc_scopes,
        user_claim=settings.console_oidc_user_claim,
        groups_claim=settings.console_oidc_groups_claim,
    )

    return Provider(client)


def _check_provider(settings: Settings, own_url: str) -> str:
    """Check the values that a provider needs; return the client's id."""
    client_id = settings.console_oidc_client_id
    scopes = settings.console_oidc_scopes
    if client_id is None:
        msg = "REDRIVE_CONSOLE_OIDC_ISSUER is set and REDRIVE_CONSOLE_OIDC_CLIENT_ID is not"
        raise SettingsError(msg)
    if "openid" not in scopes.split():
        msg = f"REDRIVE_CONSOLE_OIDC_SCOPES is {scopes!r}; it must contain openid"
        raise SettingsError(msg)
    if urlsplit(own_url).path:
        msg = f"REDRIVE_CONSOLE_URL is {own_url!r}; it must have no path"
        raise SettingsError(msg)

    return client_id


def _safe(variable: str, url: str | None) -> str:
    """Return an address that begins with https:// or is on this machine.

    So its traffic cannot be read on the way.

    Raises:
        SettingsError: the address is missing or is of another kind.
    """
    if url and _is_safe(url):
        return url

    fault = f"is {url!r}" if url else "is not set, and the provider needs it"
    msg = f"{variable} {fault}; it must begin with https://, or on this machine http://localhost"
    raise SettingsError(msg)


def _is_safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False

    if not parts.hostname:
        return False

    return parts.scheme == "https" or parts.hostname in LOCAL


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
        # A file that cannot be read gets the same error as one that holds too little.
        text = ""

    if len(text) < least:
        msg = f"{variable}_FILE is {file}; it must hold text of {least} characters or more"
        raise SettingsError(msg)

    return text
