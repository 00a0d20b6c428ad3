"""The file of targets: read it, or reject it with one line."""

import re
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from redrive.errors import SettingsError
from redrive.handlers.arguments import LEAST_RATE, MOST_RATE
from redrive.rules.attempts.policy import MAX_BACKOFF, MAX_WINDOW, OnDeath
from redrive.rules.heal import MOST_CANARIES, Heal
from redrive.rules.slots import CatchUp
from redrive.rules.yaml_text import UNREADABLE, first_fault, read_yaml, why_unreadable

FRAMING = frozenset({"connection", "content-length", "transfer-encoding", "upgrade"})
"""Headers that say where a request ends; a second opinion would let a payload begin one."""


def _refuse_framing(name: str) -> str:
    if name.lower() in FRAMING:
        msg = "is set by the worker itself"
        raise ValueError(msg)
    return name


KIND = re.compile(r"\*|[A-Za-z][A-Za-z0-9_.-]{0,61}(\*|[A-Za-z0-9_.-])?")
"""A kind, or a prefix of kinds that ends in `*`."""
RULE_OF_KINDS = "a kind must match ^[A-Za-z][A-Za-z0-9_.-]{0,62}$, and a prefix of kinds must end in *"

HeaderName = Annotated[
    str,
    Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"),
    AfterValidator(_refuse_framing),
]
HeaderText = Annotated[str, Field(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]
"""Text without line ends, because text after a line end would be a separate header."""


def _refuse_bool(value: object) -> object:
    """Raise ValueError for true and false, which pydantic takes for 1 and 0."""
    if isinstance(value, bool):
        msg = "must be a number"
        raise ValueError(msg)  # noqa: TRY004 # pydantic reports a ValueError
    return value


_Number = Annotated[float, BeforeValidator(_refuse_bool)]
_Whole = Annotated[int, BeforeValidator(_refuse_bool)]


class TargetHeal(BaseModel):
    """Heal of a target; see `redrive.Heal`."""

    model_config = ConfigDict(extra="forbid")

    canaries: Annotated[int, Field(ge=1, le=MOST_CANARIES)] = Heal().canaries
    max_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class Target(BaseModel):
    """Target of a kind's jobs. Durations are in seconds; retries as in `Policy`."""

    model_config = ConfigDict(extra="forbid")

    url: str
    method: Literal["POST", "PUT"] = "POST"
    timeout: Annotated[_Number, Field(gt=0, le=86_400)] = 30
    headers: dict[HeaderName, HeaderText] = {}
    signing_key_file: Path | None = None
    ca_file: Path | None = None
    client_cert_file: Path | None = None
    client_key_file: Path | None = None
    max_attempts: Annotated[_Whole, Field(ge=1)] | None = None
    window: Annotated[_Number, Field(gt=0, le=MAX_WINDOW)] | None = None
    backoff: Annotated[_Number, Field(ge=0, le=MAX_BACKOFF)] | None = None
    backoff_cap: Annotated[_Number, Field(ge=0, le=MAX_BACKOFF)] | None = None
    depends_on: list[str] = []
    on_death: OnDeath = "continue"
    limits: list[str] = []
    sample: bool = True
    heal: TargetHeal | None = None
    redrive_rate: Annotated[_Number, Field(ge=LEAST_RATE, le=MOST_RATE)] | None = None
    repeatable: bool = True


class TargetSchedule(BaseModel):
    """Schedule of a kind's jobs; see `redrive.Schedule`."""

    model_config = ConfigDict(extra="forbid")

    kind: str
    cron: str
    tz: str = "UTC"
    catch_up: CatchUp = "one"
    payload: dict[str, Any] = {}
    name: str | None = None
    queue: str = "default"


class Targets(BaseModel):
    """Contents of the file; `targets` are by kind, or by a prefix that ends in `*`."""

    model_config = ConfigDict(extra="forbid")

    allowed_hosts: list[str]
    allowed_networks: list[IPv4Network | IPv6Network] = []
    targets: dict[str, Target]
    schedules: list[TargetSchedule] = []


def load(path: Path) -> Targets:
    """Read a file of targets.

    Raises:
        SettingsError: the file cannot be read, a field or a kind is wrong, or a URL's
            host is not in `allowed_hosts`.
    """
    try:
        read = Targets.model_validate(_read_yaml(path))
    except ValidationError as error:
        raise _refused(path, first_fault(error)) from None

    for kind, target in read.targets.items():
        if not KIND.fullmatch(kind):
            raise _refused(path, f"targets.{kind[:63]!r}: {RULE_OF_KINDS}")
        if fault := _fault_of_url(target.url, read.allowed_hosts):
            raise _refused(path, f"targets.{kind}.url {fault}")
        if fault := _fault_of_heal(kind, target):
            raise _refused(path, f"targets.{kind}.heal: {fault}")

    return read


def _fault_of_heal(kind: str, target: Target) -> str | None:
    if not target.heal:
        return None

    if kind.endswith("*"):
        return "give each kind that heals its own target"
    if not target.repeatable:
        return "heal redrives by itself, but repeatable: false forbids that"

    return None


def _read_yaml(path: Path) -> Any:
    try:
        return read_yaml(path.read_text(encoding="utf-8-sig"))
    except UNREADABLE as error:
        raise _refused(path, why_unreadable(error)) from None


def _refused(path: Path, why: str) -> SettingsError:
    return SettingsError(f"REDRIVE_TARGETS is {path}; {why}")


def _fault_of_url(url: str, allowed_hosts: list[str]) -> str:
    """Return the fault of a target's URL; empty if the URL is valid."""
    try:
        parts = urlsplit(url)
        # A port is checked only when it is read.
        _ = parts.port
    except ValueError:  # an open bracket, or an invalid port
        return "is not a URL: its host or port cannot be read"

    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return "must start with http:// or https:// and name a host"
    if parts.username is not None or parts.password is not None:
        return "holds credentials; put them into a header or a signing key"
    if not url.isascii() or not url.isprintable() or " " in url:
        rule = "write the host as xn--..., percent-encode the path"
        return f"must be ASCII without spaces; {rule}"
    if parts.hostname not in map(str.lower, allowed_hosts):
        return f"goes to {parts.hostname}, which is not among allowed_hosts"

    return ""
