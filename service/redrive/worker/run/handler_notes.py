"""Reports of a handler while it runs: progress, checkpoints and side effects."""

from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

import msgspec

from redrive.handlers.job import Notes
from redrive.rules.payloads.redact import redact, scrub
from redrive.worker.run.failures import Failing
from redrive.worker.run.notes import ProgressRow
from redrive.worker.run.sealing import Key, sealed_note, sealed_side_effect


class Reporting(Failing, Protocol):
    """Parts of an attempt that its handler's reports need."""

    is_noting: bool

    @property
    def key(self) -> Key:
        """Return the job and its delivery."""
        ...


class HandlerNotes(Notes):
    """Reports of one attempt's handler. It may call from a thread."""

    def __init__(self, attempt: Reporting) -> None:
        self._attempt = attempt
        self._services = attempt.services

    def progress(self, share: float, text: str) -> None:
        """Note how far the handler is."""
        self._attempt.is_noting = True
        self._services.notes.progress(
            self._attempt.key, partial(self._sealed_progress, share, text)
        )

    def _sealed_progress(self, share: float, text: str) -> ProgressRow:
        """Return a row of `Progress`, without secrets, sealed if failures are."""
        sealed = sealed_note(
            self._services.keyring,
            {"text": scrub(text, self._attempt.secrets())},
            "progress",
            self._attempt.key,
        )
        return (*self._attempt.key, share, sealed)

    def checkpoint(self, data: str) -> "Future[bool]":
        """Send a checkpoint; the future says if it was kept.

        The next attempt gets the data as it is, so no secrets are taken out.
        """
        self._attempt.is_noting = True
        note = {"data": msgspec.Raw(data.encode())}
        return self._services.notes.checkpoint(
            self._attempt.key,
            sealed_note(self._services.keyring, note, "checkpoint", self._attempt.key),
        )

    def side_effect(self, what: str, detail: dict[str, Any]) -> None:
        """Send a side effect that the handler reports, without secrets."""
        secrets = self._attempt.secrets()
        declared = self._attempt.handler.secret
        what = scrub(what, secrets)
        detail = redact(detail, declared, secrets)

        keyring = self._services.keyring
        self._services.send(
            sealed_side_effect(keyring, what, detail, self._attempt.key)
        )
