"""Identities and roles: bearer tokens, a trusted proxy, and sessions of people.

The process keeps no session, so any replica can answer. A session is a signed cookie.
It names a token, and ends with that token, or holds the groups that a provider sent. Of
a token, only its SHA-256 is stored.
"""

import hashlib
import hmac
import re
import time
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Protocol

from itsdangerous import BadData, URLSafeTimedSerializer

from redrive.errors import SettingsError
from redrive.extras.console.security.act_links import ActLinks
from redrive.verbs.refusal import Invalid, Refused

Network = IPv4Network | IPv6Network

SESSION_SECONDS = 12 * 3600
IDLE_SECONDS = 2 * 3600
"""A session ends after SESSION_SECONDS, or IDLE_SECONDS after its last request."""
RENEW_SECONDS = 300
SIGN_IN_SECONDS = 600
NOTICE_SECONDS = 60
COOKIE = "__Host-redrive"
"""Browsers accept a __Host- cookie only over HTTPS or from localhost."""
PENDING = "__Host-redrive-sign-in"
CALLBACK = "/sign-in/callback"

_HASH = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[^\x00-\x1f\x7f,]{1,255}")
_LINE = "write: SHA-256 of the token as 64 hexadecimal digits, a role, a name"


class Role(IntEnum):
    """Permissions of a user; each role includes the roles before it.

    The console checks them for a clear message. Postgres enforces them.
    """

    VIEWER = 1
    OPERATOR = 2
    APPROVER = 3

    @property
    def word(self) -> str:
        """Return the role in lower case, as settings write it."""
        return self.name.lower()


ROLES: Mapping[str, Role] = {role.word: role for role in Role}


@dataclass(frozen=True, slots=True)
class Principal:
    """A user who is signed in.

    Attributes:
        name: name of the user, as the method of the sign-in has it.
        role: role that limits what the user may do.
        session: session that the forms of the user belong to; empty for programs.
        may_forge: True if the browser sends the credentials by itself, so that another
            site could forge a request.
        renewed: new cookie for a session in use; None if the old cookie is recent.
        method: how the user signed in: oidc, proxy or token; "" if nobody signs in.
    """

    name: str
    role: Role
    session: str = ""
    may_forge: bool = True
    renewed: str | None = None
    method: str = ""

    @property
    def actor(self) -> str:
        """Return the name for the audit log. No method can speak as one of another."""
        return f"{self.method}:{self.name}" if self.method else self.name

    @property
    def may_change(self) -> bool:
        """Return True if the role of the user may make changes."""
        return self.role >= Role.OPERATOR


@dataclass(frozen=True, slots=True)
class Token:
    """A line of the file of tokens."""

    hash: str
    role: Role
    name: str


class Tokens:
    """The tokens file, read again when it changes; a removed token ends at once."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._state: object = None
        self._tokens: dict[str, Token] = {}

    def read(self) -> Mapping[str, Token]:
        """Return the tokens by their hash.

        Raises:
            SettingsError: the file cannot be read, or a line is invalid; the message
                names it.
        """
        try:
            self._read_again()
        except OSError as error:
            raise self._unreadable(error.strerror) from None
        except UnicodeDecodeError:
            fault = "it is not text"
            raise self._unreadable(fault) from None

        return self._tokens

    def _read_again(self) -> None:
        """Read the file if it has changed."""
        stat = self._file.stat()
        state = stat.st_mtime_ns, stat.st_size, stat.st_ino
        if state == self._state:
            return

        lines = self._file.read_text().splitlines()
        self._tokens = {token.hash: token for token in self._parsed(lines)}
        # Set this last: the next request then reads a file with an invalid line again.
        self._state = state

    def _unreadable(self, why: str | None) -> SettingsError:
        return SettingsError(
            f"REDRIVE_CONSOLE_TOKENS is {self._file}; it cannot be read: {why}"
        )

    def _parsed(self, lines: Sequence[str]) -> Iterator[Token]:
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue

            token = _token(line)
            if token is None:
                # The message does not quote the line, which may hold a token.
                place = f"line {number} of {self._file} is no token"
                rule = f"{_LINE}; a role is one of: {', '.join(ROLES)}"
                msg = f"REDRIVE_CONSOLE_TOKENS: {place}; {rule}"
                raise SettingsError(msg)

            yield token


def tokens_of(file: Path | None) -> Tokens | None:
    """Return the tokens of a file; None if none is configured."""
    if file is None:
        return None
    return Tokens(file)


def _token(line: str) -> Token | None:
    """Parse a line of the file; return None if it is no token."""
    parts = line.split(maxsplit=2)
    if len(parts) != 3:  # noqa: PLR2004 # hash, role and name
        return None

    digest, role, text = parts
    name = _one_name(text.strip())
    if not _HASH.fullmatch(digest) or role not in ROLES or name is None:
        return None

    return Token(hash=digest, role=ROLES[role], name=name)


def _one_name(text: str) -> str | None:
    """Return a name in the one form that all its spellings have; None if it is not valid.

    A character that nobody sees would make two names of one.
    """
    name = unicodedata.normalize("NFKC", text)
    is_seen = all(unicodedata.category(sign) != "Cf" for sign in name)

    return name if is_seen and _NAME.fullmatch(name) else None


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that signs users in, and names them in headers.

    Attributes:
        networks: addresses of the proxy; requests from others are not trusted.
    """

    networks: Sequence[Network]
    user_header: str = "x-forwarded-user"
    groups_header: str = "x-forwarded-groups"


class Provider(Protocol):
    """An identity provider for sign-in; `oidc.Provider` implements it."""

    @property
    def host(self) -> str:
        """Return the name of the provider as people know it."""
        ...

    async def begin(self, request: Any, pending: dict[str, Any]) -> Any:
        """Redirect a user to the provider; store in `pending` what `complete` needs."""
        ...

    async def complete(
        self, request: Any, pending: dict[str, Any]
    ) -> tuple[str, frozenset[str]]:
        """Return name and groups of a user who comes back from the provider."""
        ...


class Access:
    """All ways to sign in.

    Args:
        groups: name of a group of the proxy or the provider -> role of its members.
        everybody: the user of all requests. Nobody signs in, as in the demo.
    """

    def __init__(  # noqa: PLR0913 # all ways to sign in
        self,
        *,
        tokens: Tokens | None = None,
        proxy: Proxy | None = None,
        provider: Provider | None = None,
        groups: Mapping[str, Role] | None = None,
        key: str | None = None,
        everybody: Principal | None = None,
    ) -> None:
        self.tokens = tokens
        self.proxy = proxy
        self.provider = provider
        self.everybody = everybody
        self._groups = groups or {}
        # Without a key in the settings, sessions end with this process.
        key = key or token_urlsafe(32)
        self.act_links = ActLinks(key)
        # A salt for each use: a signed text is not accepted in the place of another kind.
        self._sessions = URLSafeTimedSerializer(key, salt="redrive session")
        self._pending = URLSafeTimedSerializer(key, salt="redrive sign-in")
        self._forms = URLSafeTimedSerializer(key, salt="redrive form")
        self._notices = URLSafeTimedSerializer(key, salt="redrive said")

    # ------------------------------------------------------------------ identity

    def identify(
        self, peer: str | None, headers: Sequence[tuple[str, str]], cookie: str | None
    ) -> Principal | None:
        """Identify the user of a request; None if they are unknown.

        Args:
            peer: address of the other end of the connection, which may be a proxy.
            headers: names and values of the headers, as they were sent.
            cookie: value of the session's cookie; None without a session.

        Raises:
            Refused: the credentials are wrong, or give no access.
        """
        if self.everybody is not None:
            return self.everybody

        credentials = _only(headers, "authorization") or ""
        scheme, _, token = credentials.partition(" ")
        if scheme.lower() == "bearer" and token:
            return self._bearer(token.strip())

        return self._session(cookie) or self._proxied(peer, headers)

    def _bearer(self, text: str) -> Principal:
        token = self._token(text)
        if token is None:
            raise Refused(401, "the token is unknown or was revoked")
        return Principal(token.name, token.role, may_forge=False, method="token")

    def _token(self, text: str) -> Token | None:
        digest = hashlib.sha256(text.encode()).hexdigest()
        for known, token in self._known_tokens().items():
            # The time of this comparison does not tell how many digits match.
            if hmac.compare_digest(known, digest):
                return token
        return None

    def _known_tokens(self) -> Mapping[str, Token]:
        return self.tokens.read() if self.tokens else {}

    def person(self, authorization: str, cookie: str | None) -> str | None:
        """Return a digest of the person who has a token or a session; None for others.

        All tokens and sessions of a person share their quotas.
        """
        scheme, _, text = authorization.partition(" ")
        if scheme.lower() == "bearer":
            with suppress(SettingsError):  # the page says what is wrong with the file
                token = self._token(text.strip())
                return token and _digest(f"token:{token.name}")
            return None

        claims, _ = _dated(self._sessions, cookie, IDLE_SECONDS)
        return claims and str(claims["session"]).partition(".")[0]

    def is_proxy(self, address: str | None) -> bool:
        """Return True if a connection comes from the trusted proxy."""
        try:
            peer = ip_address(address or "")
        except ValueError:
            return False
        # A socket for both families shows an IPv4 peer as ::ffff:10.0.0.5.
        peer = getattr(peer, "ipv4_mapped", None) or peer
        trusted = self.proxy.networks if self.proxy else ()
        return any(peer in network for network in trusted)

    def _session(self, cookie: str | None) -> Principal | None:
        claims, used = _dated(self._sessions, cookie, IDLE_SECONDS)
        if claims is None:
            return None

        now = time.time()
        # The signature is as old as the last renewal. The claims hold the time of the
        # sign-in.
        if now - claims["began"] > SESSION_SECONDS:
            return None

        user = self._user_of(claims)
        if user is None or now - used < RENEW_SECONDS:
            return user

        return replace(user, renewed=str(self._sessions.dumps(claims)))

    def _user_of(self, claims: Mapping[str, Any]) -> Principal | None:
        """Return the user of a session, with the tokens and roles of today."""
        session = claims["session"]
        if "token" in claims:
            # A session ends with its token: the file may no longer have it.
            token = self._known_tokens().get(claims["token"])
            return token and Principal(token.name, token.role, session, method="token")

        if self.provider is None:
            return None

        role = self._role_of(claims["groups"])
        return Principal(claims["name"], role, session, method="oidc")

    def _proxied(
        self, peer: str | None, headers: Sequence[tuple[str, str]]
    ) -> Principal | None:
        if self.proxy is None or not self.is_proxy(peer):
            return None

        given = _only(headers, self.proxy.user_header)
        if given is None:
            return None

        name = _one_name(given)
        if name is None:
            raise Refused(403, "the proxy's header does not hold one name")

        listed = _only(headers, self.proxy.groups_header) or ""
        role = self._role_of(_parts(listed))

        return Principal(name, role, method="proxy")

    def _role_of(self, groups: Collection[str]) -> Role:
        """Return the highest role of a user's groups.

        Raises:
            Refused: no group has a role.
        """
        found = [self._groups[group] for group in groups if group in self._groups]
        if not found:
            rule = "REDRIVE_CONSOLE_GROUPS assigns roles"
            raise Refused(403, f"none of your groups has a role here; {rule}")
        return max(found)

    # ------------------------------------------------------------------ sessions

    def sign_in(self, text: str) -> str | None:
        """Return the cookie of a new session; None if the token is unknown."""
        token = self._token(text.strip())
        if token is None:
            return None
        return self._begin(f"token:{token.name}", {"token": token.hash})

    def sign_in_by_provider(self, name: str, groups: Collection[str]) -> str:
        """Return the cookie of a new session for a user of the provider.

        Raises:
            Refused: no group has a role, or the name is not valid.
        """
        one = _one_name(name)
        if one is None:
            rule = "one name of at most 255 visible characters"
            raise Refused(403, f"your provider must send {rule}")

        # Refuse a user without a role before a session begins.
        self._role_of(groups)
        with_role = set(groups) & self._groups.keys()

        return self._begin(f"oidc:{one}", {"name": one, "groups": sorted(with_role)})

    def _begin(self, person: str, identity: Mapping[str, Any]) -> str:
        # The first part stands for the person, who has quotas.
        session = {
            "session": f"{_digest(person)}.{token_urlsafe(16)}",
            "began": int(time.time()),
        }
        return str(self._sessions.dumps({**identity, **session}))

    def sign_pending(self, sign_in: Mapping[str, Any]) -> str:
        """Return the cookie of a sign-in that is in progress at the provider."""
        return str(self._pending.dumps(sign_in))

    def read_pending(self, cookie: str | None) -> dict[str, Any]:
        """Return the contents of the sign-in cookie; empty if it is not valid."""
        return _loaded(self._pending, cookie, SIGN_IN_SECONDS) or {}

    # ------------------------------------------------------------------ forms

    def form_token(self, user: Principal) -> str:
        """Return the secret of a user's forms, which no other site knows."""
        owner = [user.actor, user.session]
        return str(self._forms.dumps(owner))

    def is_own_form(self, user: Principal, token: str) -> bool:
        """Return True if a form was made for this user."""
        owner = _loaded(self._forms, token)
        return owner == [user.actor, user.session]

    def sign_notice(self, text: str) -> str:
        """Sign a sentence for the next page, so that no other site can set one."""
        return str(self._notices.dumps(text))

    def read_notice(self, signed: str | None) -> str | None:
        """Return the sentence that the previous page signed; None if it is forged."""
        text = _loaded(self._notices, signed, NOTICE_SECONDS)
        return text if isinstance(text, str) else None


def _digest(person: str) -> str:
    return hashlib.sha256(person.encode()).hexdigest()[:16]


def _loaded(
    serializer: URLSafeTimedSerializer, text: str | None, age: int = SESSION_SECONDS
) -> Any:
    value, _ = _dated(serializer, text, age)
    return value


def _dated(
    serializer: URLSafeTimedSerializer, text: str | None, age: int
) -> tuple[Any, float]:
    """Return a signed value and its time; None if it is forged or older than `age`."""
    try:
        value, at = serializer.loads(text or "", max_age=age, return_timestamp=True)
    except BadData:
        return None, 0

    return value, at.timestamp()


def _only(headers: Sequence[tuple[str, str]], name: str) -> str | None:
    """Return the value of a header; None if it is missing or empty.

    Raises:
        Refused: the header is there twice, as when a client adds its own to the
            proxy's.
    """
    values = [value for key, value in headers if key.lower() == name.lower()]
    if not values:
        return None
    if len(values) > 1:
        raise Invalid(f"the header {name} is there more than once")

    (text,) = values
    return text.strip() or None


def cookie(name: str, value: str, seconds: int) -> str:
    """Return a Set-Cookie value, hidden from scripts; 0 seconds delete the cookie."""
    return f"{name}={value}; Max-Age={seconds}; Path=/; HttpOnly; Secure; SameSite=lax"


def is_own_site(headers: Mapping[str, str]) -> bool:
    """Return True if the browser says that one of our own pages sends the request."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"

    # A browser that does not send Sec-Fetch-Site sends the origin of a form.
    _, _, origin = headers.get("origin", "").partition("://")
    return bool(origin) and origin == headers.get("host")


def networks(text: str) -> tuple[Network, ...]:
    """Read REDRIVE_CONSOLE_PROXIES.

    Raises:
        SettingsError: a part is not an address or a network.
    """
    try:
        return tuple(map(ip_network, _parts(text)))
    except ValueError as error:
        rule = "write addresses or networks: 10.0.0.5,10.1.0.0/16"
        msg = f"REDRIVE_CONSOLE_PROXIES: {error}; {rule}"
        raise SettingsError(msg) from None


def _parts(text: str) -> list[str]:
    """Return the parts of a list in a setting, without spaces around them."""
    return [part.strip() for part in text.split(",") if part.strip()]


def group_roles(text: str) -> dict[str, Role]:
    """Read REDRIVE_CONSOLE_GROUPS, as oncall=operator,staff=viewer.

    Raises:
        SettingsError: a part is not a group with a role.
    """
    found: dict[str, Role] = {}
    for part in _parts(text):
        group, _, role = part.rpartition("=")
        if not group or role not in ROLES:
            roles = ", ".join(ROLES)
            rule = f"write GROUP=ROLE, a role is one of: {roles}"
            msg = f"REDRIVE_CONSOLE_GROUPS holds {part!r}; {rule}"
            raise SettingsError(msg)

        found[group.strip()] = ROLES[role]

    return found
