"""Every setting, with its unit, default and range. Only the command line reads them.

Each is the environment variable REDRIVE_<NAME>; a flag of the same name overrides it. Secrets can
be read from a file instead: REDRIVE_DATABASE_URL_FILE.
"""

import os
import re
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from redrive.database.connect import URL_RULE, Address
from redrive.errors import SettingsError
from redrive.rules.limits import NAME

PREFIX = "REDRIVE_"
ENV_NAME = re.compile(r"[A-Za-z_*][A-Za-z0-9_*]*")
NUMBERS = {int: "a whole number", float: "a number of seconds"}
TRUTHS = {"on": "true", "yes": "true", "off": "false", "no": "false"}
OTHERS_PREFIXES = ("REDRIVE_TEST_", "REDRIVE_DEMO_", "REDRIVE_CHAOS_")
"""Of variables that our tests and the demo read, and no command."""

_SERVICE = re.compile(
    r"REDRIVE_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)\Z"
)
_SERVICE_URL = re.compile(r"(?:tcp|udp|sctp)://")
"""What Kubernetes tells each pod of a Service whose name begins with redrive; REDRIVE_..._PORT is
one of these only by its value.
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of every command."""

    database_url: Annotated[
        str | None, Meta(description="Postgres, as a libpq URL or conninfo.")
    ] = field(default=None, repr=False)
    database_url_file: Annotated[
        Path | None, Meta(description="A file that holds the URL instead.")
    ] = None
    handlers: Annotated[
        str | None, Meta(description="The registry of handlers, as module:attribute.")
    ] = None
    targets: Annotated[
        Path | None, Meta(description="A YAML file that routes kinds to HTTP endpoints.")
    ] = None
    queues: Annotated[
        str | None, Meta(description="Queues to work on, comma-separated; all by default.")
    ] = None
    slots: Annotated[int, Meta(ge=1, le=4096, description="Jobs at once per runner.")] = 16
    runners: Annotated[int, Meta(ge=1, le=64, description="Runner processes per worker.")] = 1
    runner_env: Annotated[
        str | None,
        Meta(
            description="Variables that handlers get, comma-separated, `*` at will; by default all"
            " but REDRIVE_DATABASE_URL and PGPASSWORD."
        ),
    ] = None
    runner_memory_mib: Annotated[
        int, Meta(ge=0, description="Replace a runner that grows past this, in MiB; 0 = never.")
    ] = 0
    http_port: Annotated[
        int, Meta(ge=0, le=65535, description="Port of /metrics, /livez and /readyz; 0 = none.")
    ] = 9808
    database_metrics: Annotated[
        bool,
        Meta(description="Whether workers export the database's figures as the exporter does."),
    ] = True
    heartbeat_ttl: Annotated[
        float, Meta(ge=1, le=3600, description="Seconds of silence until a worker counts as lost.")
    ] = 30
    drain_timeout: Annotated[
        float, Meta(ge=0, le=86400, description="Seconds running jobs get to finish after SIGTERM.")
    ] = 30
    startup_timeout: Annotated[
        float,
        Meta(ge=0, le=86400, description="Seconds a worker or exporter waits for the schema."),
    ] = 10
    encryption_keys: Annotated[
        str | None,
        Meta(
            description="Keys that encrypt payloads and failures; lines of `id base64-of-32-bytes`."
        ),
    ] = field(default=None, repr=False)
    encryption_keys_file: Annotated[
        Path | None, Meta(description="A file that holds these keys instead.")
    ] = None
    actor: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255)] | None,
        Meta(description="Who acts, as the audit log records it."),
    ] = None
    environment: Annotated[
        Annotated[str, Meta(max_length=63)] | None,
        Meta(description="Where this runs (production, ...); kept with failures."),
    ] = None
    node: Annotated[
        Annotated[str, Meta(max_length=253)] | None,
        Meta(description="The node this runs on; kept with failures."),
    ] = None
    version: Annotated[
        Annotated[str, Meta(max_length=127)] | None,
        Meta(description="Version of the image; kept with failures."),
    ] = None
    log_format: Annotated[
        Literal["json", "console"] | None,
        Meta(description="json, or console for people; by default console on a terminal."),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="The least severe level that is logged."),
    ] = "info"

    def address(self) -> Address:
        """Where the database is, for what connects more than once.

        Raises:
            SettingsError: neither variable is set.
        """
        if self.database_url is None and self.database_url_file is None:
            msg = f"REDRIVE_DATABASE_URL is not set; {URL_RULE}"
            raise SettingsError(msg)
        if self.database_url is not None:
            return Address(self.database_url)
        return Address(file=self.database_url_file)

    def url(self) -> str:
        """Where the database is just now.

        Raises:
            SettingsError: neither variable is set, the file cannot be read, or the text is not a
                Postgres URL.
        """
        return self.address().read()

    def queue_names(self) -> tuple[str, ...] | None:
        """The queues to work on; None = all. Raises SettingsError for a name that is not valid."""
        if self.queues is None:
            return None
        names = tuple(name.strip() for name in self.queues.split(",") if name.strip())
        wrong = next((name for name in names if not NAME.match(name)), None)
        if wrong is not None:
            msg = f"REDRIVE_QUEUES holds {wrong!r}; a queue must match ^[a-z][a-z0-9_.-]{{0,62}}$"
            raise SettingsError(msg)
        if not names:  # nothing must not mean everything
            msg = f"REDRIVE_QUEUES is {self.queues!r}; it must name a queue, or be unset"
            raise SettingsError(msg)
        return names

    def runner_env_names(self) -> tuple[str, ...]:
        """The names of variables that runners get. Raises SettingsError for what is no name."""
        if self.runner_env is None:
            return ("*",)
        names = tuple(name.strip() for name in self.runner_env.split(",") if name.strip())
        if not all(map(ENV_NAME.fullmatch, names)):  # not shown: it may be a value
            msg = "REDRIVE_RUNNER_ENV must be names of variables, such as: STRIPE_*,SHOP_URL"
            raise SettingsError(msg)
        return names

    def who(self) -> str:
        """The actor: as set, else the user of this machine, at its name."""
        if self.actor:
            return self.actor
        user = os.environ.get("USER") or f"uid {os.getuid()}"
        return f"{user}@{socket.gethostname()}"


def load(**overrides: Any) -> Settings:
    """Read the settings; `overrides` are flags, None = not given.

    Raises:
        SettingsError: one line for the first value that is not allowed.
    """
    environment = {name.upper(): value for name, value in os.environ.items() if value}
    given: dict[str, Any] = {}
    for one in fields(Settings):
        value = overrides.get(one.name)
        if value is None:
            value = environment.get(PREFIX + one.name.upper())
        if value is not None:
            given[one.name] = _value(one, value)
    return Settings(**given)


def descriptions() -> dict[str, str]:
    """What each setting is, by its name."""
    return {one.name: _annotated(one)[1].description or "" for one in fields(Settings)}


def refuse_unknown(of_options: Callable[[], Iterable[str]]) -> None:
    """Refuse a variable that looks like ours and is not: what it was to change would not change.

    Args:
        of_options: the variables that stand for options; asked for only when there is a doubt.

    Raises:
        SettingsError: one line; it names the nearest that there is, and never a value.
    """
    settings = {PREFIX + name.upper() for name in descriptions()}
    others = sorted(name for name in os.environ if _looks_ours(name, settings))
    options = set(of_options()) if others else set[str]()
    known = sorted(settings | options)
    faults = [_unknown(name, known) for name in others if name not in options]
    # as a shell writes one that is not set, and nothing must not mean everything
    empty = [name for name in others if name in options and not os.environ[name].strip()]
    faults += [f"{name} is empty; give it a value, or leave it out" for name in empty]
    if faults:
        raise SettingsError("; ".join(faults))


def _looks_ours(name: str, settings: Collection[str]) -> bool:
    """Whether a variable must be one of an option, if it is anything. Settings come in any case."""
    upper = name.upper()
    if not upper.startswith(PREFIX) or upper.startswith(OTHERS_PREFIXES) or upper in settings:
        return False
    is_url = upper.endswith("_PORT") and _SERVICE_URL.match(os.environ[name])
    return not (is_url or _SERVICE.match(upper))


def _unknown(name: str, known: Sequence[str]) -> str:
    # REDRIVE_KIND is nearer to REDRIVE_REDRIVE_KIND than its letters say
    ending = name.upper().removeprefix(PREFIX.rstrip("_"))
    meant = [one for one in known if one.endswith(ending)]
    meant = meant or get_close_matches(name.upper(), known, n=1)
    hint = f"did you mean {' or '.join(meant)}?" if meant else "unset it, or name it otherwise"
    return f"{name} is not a setting; {hint}"


def _value(setting: Field[Any], given: Any) -> Any:
    """A value as its type has it. Raises SettingsError."""
    wanted, meta = _annotated(setting)
    said = given
    if is_said := isinstance(given, str) and wanted in (*NUMBERS, bool):
        said = given.strip().lower()
        said = TRUTHS.get(said, said)
    try:
        return msgspec.convert(said, setting.type, strict=not is_said, dec_hook=_made)
    except msgspec.ValidationError:
        name = PREFIX + setting.name.upper()
        held = "" if "url" in setting.name else f" is {given!r};"
        msg = f"{name}{held} it must be {_allowed(wanted, meta)}. {meta.description}"
        raise SettingsError(msg) from None


def _annotated(setting: Field[Any]) -> tuple[Any, Meta]:
    """The type of a setting, and what else is said of it."""
    annotation: Any = setting.type
    return annotation.__origin__, annotation.__metadata__[0]


def _made(wanted: type[Path], text: str) -> Path:
    """A path, which msgspec leaves to us."""
    return wanted(text)


def _allowed(wanted: Any, meta: Meta) -> str:
    """What a setting takes, in words."""
    if wanted is bool:
        return "true or false"
    if wanted in NUMBERS:
        at_most = "" if meta.le is None else f", {meta.le} at most"
        return f"{NUMBERS[wanted]}, {meta.ge or 0} or more{at_most}"
    if words := " or ".join(_choices(wanted)):
        return words
    text, _none = get_args(wanted)
    return f"text of 1 to {text.__metadata__[0].max_length} characters"


def _choices(annotation: Any) -> Iterator[str]:
    """The words of a Literal, also of one within a union."""
    for part in get_args(annotation):
        if isinstance(part, str):
            yield part
        else:
            yield from _choices(part)
