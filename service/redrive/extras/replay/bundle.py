"""A dead letter as `redrive dlq export` writes it, and as a replay needs it."""

from datetime import datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from redrive.errors import SettingsError
from redrive.jobs.export import BUNDLE
from redrive.rules.payloads.redact import HIDDEN
from redrive.rules.rows import Fields, Row
from redrive.testing import Past
from redrive.testing.past import can_set_clock
from redrive.worker.protocol import LastCheckpoint, Work

NEAR_YEARS = range(1971, 9000)
"""Years that a clock can be set to in every time zone."""


class Recorded(msgspec.Struct, frozen=True):
    """A failure on record."""

    error_class: str
    message: str = ""
    fingerprint: str | None = None
    detail: Row = {}


class Bundle(msgspec.Struct, frozen=True):
    """One dead letter; the names are as in `redrive dlq export`."""

    bundle: int
    id: int
    kind: str
    queue: str
    payload: Row
    attempt: int
    deliveries: int
    created_at: datetime
    started_at: datetime
    seed: str
    headers: Row = {}
    checkpoint: LastCheckpoint | None = None
    failures: list[Recorded] = []
    redrives: int = 0
    max_attempts: int | None = None
    tenant: str | None = None
    idempotency_key: str | None = None
    ordering_key: str | None = None
    redacted: bool = True

    @property
    def failure(self) -> Recorded | None:
        """Return the failure of the attempt, if it is on record."""
        return self.failures[-1] if self.failures else None

    @property
    def hidden(self) -> list[str]:
        """Return the paths of the values that were redacted, and count."""
        places = {
            "payload": self.payload,
            "headers": self.headers,
            "checkpoint": self.checkpoint and self.checkpoint.data,
        }
        return _hidden(places, "")

    def past(self) -> Past:
        """Return the circumstances of the attempt.

        Without the extra, the clock stays as it is.
        """
        return Past(
            time=self.started_at if can_set_clock() else None,
            seed=self.seed,
            attempt=self.attempt,
            headers=self.headers,
            checkpoint=self.checkpoint and self.checkpoint.data,
        )

    def work(self) -> Work:
        """Return the job in the form that its runner got."""
        checkpoint = self.checkpoint
        if checkpoint is not None:
            # The export has unwrapped the checkpoint; a runner gets it as it is stored.
            checkpoint = LastCheckpoint(checkpoint.delivery, {"data": checkpoint.data})

        extras = {
            "max_attempts": self.max_attempts,
            "redrives": self.redrives,
            "tenant": self.tenant,
            "headers": self.headers,
            "idempotency_key": self.idempotency_key,
            "ordering_key": self.ordering_key,
            "checkpoint": checkpoint,
        }

        return Work(
            id=self.id,
            deliveries=self.deliveries,
            attempt=self.attempt,
            kind=self.kind,
            payload=msgspec.json.encode(self.payload).decode(),
            extras=msgspec.json.encode(extras).decode(),
            lane=1,
            created=self.created_at.timestamp(),
        )


def read_bundle(content: bytes, name: str) -> Bundle:
    """Return a bundle from its JSON.

    Raises:
        SettingsError: it is not one; the message begins with `name`.
    """
    try:
        found = msgspec.json.decode(content, type=Bundle)
    except (msgspec.DecodeError, RecursionError) as error:
        made = "it must be what redrive dlq export prints"
        msg = f"{name}: {error}; {made}"
        raise SettingsError(msg) from None

    if found.bundle != BUNDLE:
        msg = f"{name}: its version is {found.bundle}; this program reads {BUNDLE}"
        raise SettingsError(msg)

    _check_years(found, name)
    return found


def _check_years(bundle: Bundle, name: str) -> None:
    """Raise SettingsError if a clock cannot be set to a time of the bundle."""
    if not {bundle.created_at.year, bundle.started_at.year} <= {*NEAR_YEARS}:
        msg = f"{name}: created_at or started_at is not in a year from 1971 to 8999"
        raise SettingsError(msg)


def bundle_of(exported: Fields) -> Bundle:
    """Return a bundle from `export`."""
    return read_bundle(msgspec.json.encode(exported), "the dead letter")


def with_payload(bundle: Bundle, file: Path) -> Bundle:
    """Return a bundle with the payload from a file instead.

    Raises:
        SettingsError: the file cannot be read, or holds no JSON object.
    """
    try:
        payload = msgspec.json.decode(file.read_bytes(), type=Row)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        msg = f"--payload {file}: {error}; it must hold a JSON object"
        raise SettingsError(msg) from None

    return msgspec.structs.replace(bundle, payload=payload)


def _hidden(value: Any, path: str) -> list[str]:
    """Return the paths of redacted values."""
    found: list[str] = []
    match value:
        case str():
            if HIDDEN in value:
                found.append(path)

        case dict():
            for name, item in cast("Row", value).items():
                found += _hidden(item, f"{path}.{name}".lstrip("."))

        case list():
            for n, item in enumerate(cast("list[Any]", value)):
                found += _hidden(item, f"{path}[{n}]")

        case _:
            pass

    return found
