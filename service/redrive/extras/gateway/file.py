"""The file of sources: read it, or reject it with one line."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from redrive.errors import SettingsError
from redrive.handlers.arguments import LEAST_RATE, MOST_RATE
from redrive.rules.payloads.limits import NAME
from redrive.rules.yaml_text import UNREADABLE, first_fault, read_yaml, why_unreadable

VARIABLE = "REDRIVE_GATEWAY"
CLIENTS = {"rabbitmq": "pika", "sqs": "boto3"}
"""Extra, which is also a system's name -> its client library."""


class _Source(BaseModel):
    """Fields of each source."""

    model_config = ConfigDict(extra="forbid")

    verdict_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60
    redrive_rate: Annotated[float, Field(ge=LEAST_RATE, le=MOST_RATE)] | None = None
    exact: bool = False


class RabbitMQ(_Source):
    """Dead letter queue of RabbitMQ."""

    url: str | None = None
    url_file: Path | None = None
    queue: Annotated[str, Field(min_length=1, max_length=255)]
    to: Literal["queue", "exchange"] = "queue"
    origin_queue: Annotated[str, Field(min_length=1, max_length=255)] | None = None

    def fault(self) -> str:
        """Return what is wrong with the fields together; empty if nothing is."""
        if (self.url is None) == (self.url_file is None):
            return "url: give it or url_file, and not both"
        if self.url is not None:
            return fault_of_url(self.url)
        return ""


class SQS(_Source):
    """Dead letter queue of SQS."""

    queue_url: str
    origin_url: str | None = None
    region: str | None = None
    endpoint_url: str | None = None

    def fault(self) -> str:
        """Return what is wrong with the URLs; empty if nothing is."""
        for name in ("queue_url", "origin_url", "endpoint_url"):
            url = getattr(self, name)
            if url is not None and not url.startswith(("https://", "http://")):
                return f"{name}: must start with https:// or http://"
        return ""


AnySource = RabbitMQ | SQS


class Sources(BaseModel):
    """Contents of the file: sources by system and name."""

    model_config = ConfigDict(extra="forbid")

    rabbitmq: dict[str, RabbitMQ] = {}
    sqs: dict[str, SQS] = {}

    def by_kind(self) -> Mapping[str, AnySource]:
        """Return the sources by the kind of their dead letters."""
        return {
            **{f"rabbitmq.{name}": source for name, source in self.rabbitmq.items()},
            **{f"sqs.{name}": source for name, source in self.sqs.items()},
        }


def load(path: Path) -> Mapping[str, AnySource]:
    """Read a file of sources; return them by kind.

    Raises:
        SettingsError: the file cannot be read, a field is wrong, or the client library
            of a source is not installed.
    """
    try:
        sources = Sources.model_validate(_read(path) or {}).by_kind()
    except ValidationError as error:
        raise _refused(path, first_fault(error)) from None

    if not sources:
        raise _refused(path, "it names no source; add one under rabbitmq or sqs")

    for kind, source in sources.items():
        if fault := _fault_of_name(kind) or source.fault():
            raise _refused(path, f"{kind[:80]}.{fault}")

        extra, _, _ = kind.partition(".")
        if find_spec(CLIENTS[extra]) is None:
            how = f"pip install 'redrive[{extra}]'"
            raise _refused(
                path, f"{kind} needs {CLIENTS[extra]}; install it with: {how}"
            )

    return sources


def _fault_of_name(kind: str) -> str:
    if NAME.match(kind):
        return ""
    return "name: must match ^[a-z0-9_.-]{1,53}$"


def _read(path: Path) -> Any:
    try:
        return read_yaml(path.read_text(encoding="utf-8-sig"))
    except ImportError:
        how = "pip install 'redrive[rabbitmq]' or 'redrive[sqs]'"
        msg = f"{VARIABLE} needs an extra; install it with: {how}"
        raise SettingsError(msg) from None
    except UNREADABLE as error:
        raise _refused(path, why_unreadable(error)) from None


def _refused(path: Path, why: str) -> SettingsError:
    return SettingsError(f"{VARIABLE} is {path}; {why}")


def fault_of_url(url: str) -> str:
    """Return the fault of a broker's URL in the file; empty if it has none."""
    try:
        parts = urlsplit(url)
        # Reading the port checks it.
        _ = parts.port
    except ValueError:
        return "url: is not a URL: its host or port cannot be read"

    if parts.scheme not in {"amqp", "amqps"} or not parts.hostname:
        return "url: must start with amqp:// or amqps:// and name a host"
    if parts.password is not None:
        return "url: holds a password; put the URL into a file, and name it in url_file"

    return ""
