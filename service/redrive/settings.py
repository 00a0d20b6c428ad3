"""Every setting, with its unit, default and range. Only the command line reads them.

Each setting is the environment variable REDRIVE_<NAME>; a flag of the same name
overrides it. A secret can be read from a file instead: REDRIVE_DATABASE_URL_FILE.
"""

import getpass
import os
import re
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast, get_args

from pydantic import Field, PrivateAttr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from redrive.database.connections.address import URL_RULE, Address
from redrive.errors import SettingsError
from redrive.rules.nearest import nearest
from redrive.rules.payloads.limits import NAME

if TYPE_CHECKING:
    from redrive.database.connections.cells import Cell

PREFIX = "REDRIVE_"
CELLS = PREFIX + "DATABASES"
ENV_NAME = re.compile(r"[A-Za-z_*][A-Za-z0-9_*]*")
NUMBERS = {int: "a whole number", float: "a number of seconds"}
OTHERS_PREFIXES = ("REDRIVE_TEST_", "REDRIVE_DEMO_", "REDRIVE_CHAOS_")
"""Prefixes of variables that only the tests and the demo read."""

_SERVICE = re.compile(
    r"REDRIVE_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)\Z"
)
_SERVICE_URL = re.compile(r"(?:tcp|udp|sctp)://")
"""Value that Kubernetes sets in each pod for a Service whose name begins with redrive.

A variable REDRIVE_..._PORT is one of these only if its value matches."""


_SecretFile = Annotated[
    Path | None, Field(description="A file that holds this value instead.")
]


class Settings(BaseSettings):
    """The settings of all commands."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True
    )

    database_url: str | None = Field(
        None, description="Postgres, as a libpq URL or conninfo."
    )
    database_url_file: _SecretFile = None
    databases: Path | None = Field(
        None,
        description="A YAML or JSON file of several databases, in place of the URL.",
    )
    cell: str | None = Field(
        None, min_length=1, description="The database of this file to use."
    )
    handlers: str | None = Field(
        None, description="The registry of handlers, as module:attribute."
    )
    targets: Path | None = Field(
        None, description="A YAML file that routes kinds to HTTP endpoints."
    )
    gateway: Path | None = Field(
        None, description="A YAML file of dead letter queues of other systems."
    )
    queues: str | None = Field(
        None, description="Queues to work on, comma-separated; all by default."
    )
    slots: int = Field(16, ge=1, le=4096, description="Jobs at once per runner.")
    runners: int = Field(1, ge=1, le=64, description="Runner processes per worker.")
    runner_env: str | None = Field(
        None,
        description="Variables that handlers get, comma-separated, `*` allowed; by default"
        " all except REDRIVE_DATABASE_URL and PGPASSWORD.",
    )
    runner_memory_mib: int = Field(
        0, ge=0, description="Replace a runner that grows past this, in MiB; 0 = never."
    )
    http_port: int = Field(
        9808,
        ge=0,
        le=65535,
        description="Port of /metrics, /livez and /readyz; 0 = none.",
    )
    database_metrics: bool = Field(
        default=True,
        description="True: workers export the database's figures, like the exporter.",
    )
    disk_budget_gib: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="GiB that dead letters and the history may take; an alert comes at"
        " 80 %. 0 = no budget.",
    )
    heartbeat_ttl: float = Field(
        30,
        ge=1,
        le=3600,
        description="Seconds of silence until a worker counts as lost.",
    )
    listen_url: str | None = Field(
        None,
        description="URL for notifications, if REDRIVE_DATABASE_URL is a pool in transaction mode.",
    )
    listen_url_file: _SecretFile = None
    drain_timeout: float = Field(
        30,
        ge=0,
        le=86400,
        description="Seconds that running jobs get to finish after SIGTERM.",
    )
    console_port: int = Field(9809, ge=0, le=65535, description="Port of the console.")
    console_viewer_url: str | None = Field(
        None,
        repr=False,
        description="Postgres URL for the console's viewers, who only read.",
    )
    console_viewer_url_file: _SecretFile = None
    console_operator_url: str | None = Field(
        None, repr=False, description="Postgres URL for the console's operators."
    )
    console_operator_url_file: _SecretFile = None
    console_approver_url: str | None = Field(
        None, repr=False, description="Postgres URL for the console's approvers."
    )
    console_approver_url_file: _SecretFile = None
    console_tokens: Path | None = Field(
        None,
        description="A file of tokens for the console: SHA-256, role and name in each line.",
    )
    console_key: str | None = Field(
        None,
        min_length=32,
        repr=False,
        description="Key that signs the console's sessions and forms; without it they end"
        " with the process.",
    )
    console_key_file: _SecretFile = None
    console_proxies: str | None = Field(
        None,
        description="Addresses of trusted proxies, comma-separated; their headers name the user.",
    )
    console_groups: str | None = Field(
        None,
        description="Roles by group of the proxy or the provider, such as"
        " oncall=operator,staff=viewer.",
    )
    console_user_header: str = Field(
        "X-Forwarded-User",
        min_length=1,
        description="The proxy's header with the name.",
    )
    console_groups_header: str = Field(
        "X-Forwarded-Groups",
        min_length=1,
        description="The proxy's header with the groups.",
    )
    console_url: str | None = Field(
        None, description="URL of the console, to which a provider sends people back."
    )
    console_oidc_issuer: str | None = Field(
        None,
        description="OpenID Connect provider that people sign in with to the console.",
    )
    console_oidc_client_id: str | None = Field(
        None, min_length=1, description="The console's name at the provider."
    )
    console_oidc_client_secret: str | None = Field(
        None,
        min_length=1,
        repr=False,
        description="The console's secret at the provider; unset for a public client.",
    )
    console_oidc_client_secret_file: _SecretFile = None
    console_oidc_scopes: str = Field(
        "openid email profile",
        description="Scopes to request from the provider; openid is required.",
    )
    console_oidc_user_claim: str = Field(
        "email", min_length=1, description="The provider's claim with the name."
    )
    console_oidc_groups_claim: str = Field(
        "groups", min_length=1, description="The provider's claim with the groups."
    )
    console_trace_url: str | None = Field(
        None, description="URL of a trace: https://..., with {trace_id} in it."
    )
    console_logs_url: str | None = Field(
        None, description="URL of a job's log lines: https://..., with {job_id} in it."
    )
    mcp_port: int = Field(
        9810, ge=0, le=65535, description="Port of `redrive mcp --http`."
    )
    mcp_calls_per_hour: int = Field(
        600, ge=1, description="Calls that the agents of one token may make in an hour."
    )
    mcp_proposals_per_hour: int = Field(
        20, ge=0, description="Proposals that they may make in an hour."
    )
    startup_timeout: float = Field(
        10,
        ge=0,
        le=86400,
        description="Seconds to wait at the start for the schema, and for the right to use it.",
    )
    encryption_keys: str | None = Field(
        None,
        repr=False,
        description="Keys that encrypt payloads and failures; lines of `id base64-of-32-bytes`.",
    )
    encryption_keys_file: _SecretFile = None
    success_samples: bool = Field(
        default=True,
        description="True: workers keep facts of some succeeded jobs, for `redrive dlq explain`.",
    )
    source_lines: int = Field(
        3,
        ge=0,
        le=15,
        description="Lines of source to keep with a failure, for each frame of your code; 0 = none.",
    )
    report_webhook_url: str | None = Field(
        None,
        min_length=1,
        repr=False,
        description="Slack-compatible webhook for `redrive dlq report --post`.",
    )
    report_webhook_url_file: _SecretFile = None
    actor: str | None = Field(
        None,
        min_length=1,
        max_length=255,
        description="Name of the person or program, as the audit log records it.",
    )
    environment: str | None = Field(
        None,
        max_length=63,
        description="Name of the environment, such as production; stored with failures.",
    )
    node: str | None = Field(
        None, max_length=253, description="Name of the node; stored with failures."
    )
    version: str | None = Field(
        None,
        max_length=127,
        description="Version of the image, such as 1.4.2; stored with failures.",
    )
    log_format: Literal["json", "console"] | None = Field(
        None,
        description="json, or console for people; by default console on a terminal.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least severe level that is logged."
    )

    _options: Mapping[str, str] = PrivateAttr(default_factory=dict[str, str])

    @model_validator(mode="before")
    @classmethod
    def _ignore_addresses_of_services(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Remove ports that Kubernetes set to the address of a Service.

        It sets REDRIVE_CONSOLE_PORT for a Service called redrive-console.
        """
        return {
            name: value
            for name, value in values.items()
            if not (name.endswith("_port") and _SERVICE_URL.match(str(value)))
        }

    def given_by(self, options: Mapping[str, str]) -> Self:
        """Remember the option of each field that an option sets."""
        self._options = options
        return self

    def name_of(self, field: str) -> str:
        """Return the option that set a field, or the variable that can set it."""
        return _name_of(field, self._options)

    def address(self) -> Address:
        """Return the address of the database, for callers that connect more than once.

        Raises:
            SettingsError: no variable has the address, or several databases are
                configured.
        """
        cells = self.cells()
        if len(cells) > 1:
            names = ", ".join(cell.name for cell in cells)
            msg = f"{CELLS} has several cells; name one by --cell or REDRIVE_CELL: {names}"
            raise SettingsError(msg)

        if cells:
            return cells[0].address
        found = self._address("database_url")
        if found is None:
            msg = f"REDRIVE_DATABASE_URL is not set; {URL_RULE}"
            raise SettingsError(msg)

        return found

    def listen_address(self) -> Address | None:
        """Return where workers listen for notifications; None = on the database's URL."""
        return self._address("listen_url")

    def _address(self, field: str) -> Address | None:
        url = getattr(self, field)
        file = getattr(self, f"{field}_file") if url is None else None
        if url is None and file is None:
            return None
        return Address(url or "", file, self.name_of(field))

    def cells(self) -> "tuple[Cell, ...]":
        """Return the selected cells of REDRIVE_DATABASES; empty if it is not set.

        Raises:
            SettingsError: the file is invalid, or a cell does not exist.
        """
        if self.databases is None:
            if self.cell is not None:
                msg = f"the cell {self.cell!r} is one of {CELLS}, which is not set"
                raise SettingsError(msg)

            return ()

        from redrive.database.connections.cells import read  # noqa: PLC0415 # most users have one database

        cells = read(self.databases)
        found = tuple(cell for cell in cells if self.cell in {None, cell.name})
        if not found:
            names = ", ".join(cell.name for cell in cells)
            msg = f"there is no cell {self.cell!r} in {CELLS}; there are: {names}"
            raise SettingsError(msg)

        return found

    def queue_names(self) -> tuple[str, ...] | None:
        """Return the queues to work on; None = all.

        Raises:
            SettingsError: a name is not valid, or an empty list is given.
        """
        if self.queues is None:
            return None

        names = _list(self.queues)
        wrong = next((name for name in names if not NAME.match(name)), None)
        if wrong is not None:
            rule = "a queue must match ^[A-Za-z][A-Za-z0-9_.-]{0,62}$"
            msg = f"{self.name_of('queues')} holds {wrong!r}; {rule}"
            raise SettingsError(msg)

        if not names:  # an empty list must not select all queues
            rule = "it must name a queue, or be unset"
            msg = f"{self.name_of('queues')} is {self.queues!r}; {rule}"
            raise SettingsError(msg)

        return names

    def runner_env_names(self) -> tuple[str, ...]:
        """Return the names of variables that runners get.

        Raises:
            SettingsError: a name is not valid.
        """
        if self.runner_env is None:
            return ("*",)

        names = _list(self.runner_env)
        if not all(map(ENV_NAME.fullmatch, names)):  # hidden: it may be a value
            rule = "must be names of variables, such as: STRIPE_*,SHOP_URL"
            msg = f"REDRIVE_RUNNER_ENV {rule}"
            raise SettingsError(msg)

        return names

    def who(self) -> str:
        """Return the actor: the configured name, else this user and host."""
        if self.actor:
            return self.actor

        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # many containers have no user name
            user = f"uid {os.getuid()}"

        return f"{user}@{socket.gethostname()}"


def _list(text: str) -> tuple[str, ...]:
    """Return the parts of a comma-separated text."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def load(options: Mapping[str, str] | None = None, /, **overrides: Any) -> Settings:
    """Read the settings.

    Args:
        options: field -> name of the option that sets it, for error messages.
        overrides: values of the options; None = not given.

    Raises:
        SettingsError: one line about the first value that is not allowed.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    typed = {name: option for name, option in (options or {}).items() if name in given}

    try:
        return Settings(**given).given_by(typed)
    except ValidationError as error:
        # The library's error is not chained, because it quotes the values of secrets.
        raise SettingsError(_explain(error, typed)) from None


def refuse_unknown(of_options: Callable[[], Iterable[str]]) -> None:
    """Reject an unknown variable that looks like a setting, because it has no effect.

    Args:
        of_options: returns the variables that set options; called only in case of
            doubt.

    Raises:
        SettingsError: one line with the most similar known name, and never a value.
    """
    settings = {PREFIX + name.upper() for name in Settings.model_fields}
    others = sorted(name for name in os.environ if _looks_ours(name, settings))
    if not others:
        return

    faults = _faults(others, settings, set(of_options()))
    if faults:
        raise SettingsError("; ".join(faults))


def _faults(others: Sequence[str], settings: set[str], options: set[str]) -> list[str]:
    """Describe the variables that have no effect: unknown ones, then empty ones."""
    known = sorted(settings | options)
    unknown = [name for name in others if name not in options]
    empty = [name for name in others if name in options and _is_empty(name)]

    faults = [_unknown(name, known) for name in unknown]
    faults += [f"{name} is empty; give it a value, or leave it out" for name in empty]

    return faults


def _is_empty(name: str) -> bool:
    """Return True for an empty variable.

    Shells pass unset variables as empty texts, which must not select everything.
    """
    return not os.environ[name].strip()


def _looks_ours(name: str, settings: Collection[str]) -> bool:
    """Return True if a variable is clearly meant for Redrive, in any case."""
    upper = name.upper()
    is_ours = upper.startswith(PREFIX) and not upper.startswith(OTHERS_PREFIXES)
    if not is_ours:
        return False
    if upper in settings:
        return False

    is_port = upper.endswith("_PORT")
    if is_port and _SERVICE_URL.match(os.environ[name]):
        return False
    return not _SERVICE.match(upper)


def _unknown(name: str, known: Sequence[str]) -> str:
    suggestion = _similar(name.upper(), known)
    hint = "unset it, or name it otherwise"
    if suggestion:
        hint = f"did you mean {suggestion}?"

    return f"{name} is not a setting; {hint}"


def _similar(name: str, known: Sequence[str]) -> str | None:
    # REDRIVE_KIND is closer to REDRIVE_REDRIVE_KIND than a comparison of letters finds.
    ending = name.removeprefix(PREFIX.rstrip("_"))
    same_ending = [one for one in known if one.endswith(ending)]

    return " or ".join(same_ending) or nearest(name, known)


def _name_of(field: str, options: Mapping[str, str]) -> str:
    return options.get(field) or f"{PREFIX}{field.upper()}"


def _explain(error: ValidationError, options: Mapping[str, str]) -> str:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    field = Settings.model_fields[name]
    rule = f"it must be {_allowed(field)}. {field.description}"

    shown = _name_of(name, options)
    if _is_secret(name):
        return f"{shown} {rule}"

    value = first.get("input")
    return f"{shown} is {value!r}; {rule}"


def _is_secret(field: str) -> bool:
    """Return True if errors must not show the value of a field."""
    return not {"url", "key", "secret"}.isdisjoint(field.split("_"))


def _allowed(field: FieldInfo) -> str:
    """Describe the allowed values of a field in words."""
    annotation = cast("Any", field.annotation)
    if annotation is bool:
        return "true or false"
    if annotation in NUMBERS:
        return f"{NUMBERS[annotation]}, {_range(field)}"

    shortest = _bound(field, "min_length")
    longest = _bound(field, "max_length")
    text = f"text of {shortest or 1} to {longest or 255} characters"

    return " or ".join(_choices(annotation)) or text


def _range(field: FieldInfo) -> str:
    low = _bound(field, "ge")
    high = _bound(field, "le")
    at_most = "" if high is None else f", {high} at most"

    return f"{low or 0} or more{at_most}"


def _bound(field: FieldInfo, name: str) -> float | None:
    for rule in field.metadata:
        if hasattr(rule, name):
            return getattr(rule, name)

    return None


def _choices(annotation: Any) -> Iterator[str]:
    """Return the words of a Literal, also inside a union."""
    for part in get_args(annotation):
        if isinstance(part, str):
            yield part
        else:
            yield from _choices(part)
