"""Handlers that hand a redriven job over to another system, which does the work.

An attempt sends the work and keeps a checkpoint. The next attempts look how the work
has ended there. A crash between the send and its checkpoint sends the work again.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from redrive.encryption import shown_noted
from redrive.handlers.job import Job
from redrive.signals import GiveUp

SENDING, SENT, REFUSED = "sending", "sent", "refused"
"""States of the work, as the checkpoint keeps them."""

TOKEN_BYTES = 16

NOT_IMPORTED = "the job was not imported from there as a dead letter, so it is not sent"


class Sending:
    """Checkpoint of one redrive.

    Attributes:
        sent: what the send has kept; None until the work is sent.
        may_repeat: an earlier attempt ended between its send and the checkpoint.
        token: a random text to send along. Only a report that has it is genuine. Each
            redrive has a new one, so a report of an earlier one ends nothing.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        last = job.last_checkpoint or {}

        # The checkpoint of an earlier redrive is over.
        if last.get("redrives") != job.redrives:
            last = {}

        state = last.get("state")
        self.sent = last if state == SENT else None
        self.may_repeat = state == SENDING
        self.token = last.get("token") or secrets.token_hex(TOKEN_BYTES)

    def keep(self, state: str, **more: Any) -> dict[str, Any]:
        """Keep a checkpoint, and return it.

        Args:
            state: SENDING, SENT or REFUSED.
            more: what the next attempt needs to know about the work.

        Raises:
            StaleClaim: another worker has claimed the job.
        """
        about = {"redrives": self._job.redrives, "token": self.token}
        kept = {"state": state, **about, **more}
        self._job.checkpoint(kept)

        return kept


def is_sending(data: Any) -> bool:
    """Return True if the data of a checkpoint is what `Sending` keeps."""
    return isinstance(data, dict) and {"state", "redrives", "token"} <= data.keys()


def token_of(job: int, checkpoint: Mapping[str, Any]) -> str | None:
    """Return the token in a job's checkpoint, a row; None if it cannot be read."""
    stored = checkpoint["data"]
    delivery = checkpoint["deliveries"]
    return shown_noted(stored, "checkpoint", job, delivery).get("data", {}).get("token")


class HandOver(ABC):
    """Function of a handler that hands its jobs over."""

    def __call__(self, payload: dict[str, Any], job: Job) -> None:
        """Send the work, or judge it if it was sent.

        Raises:
            GiveUp: no import of this system has brought the job in.
        """
        sending = Sending(job)
        sent = sending.sent

        if sent is None:
            # A producer must not be able to send anything. Only imports write sources.
            if job.source is None or job.source != self.source_of(job):
                raise GiveUp(NOT_IMPORTED)

            sent = sending.keep(SENT, **self.send(payload, job, sending))

        self.judge(job, sent)

    @abstractmethod
    def source_of(self, job: Job) -> str:
        """Return the source under which this system's dead letters are imported."""

    @abstractmethod
    def send(
        self, payload: dict[str, Any], job: Job, sending: Sending
    ) -> dict[str, Any]:
        """Send the work; return what `judge` needs.

        Call `sending.keep(SENDING)` right before the send.
        """

    @abstractmethod
    def judge(self, job: Job, sent: dict[str, Any]) -> None:
        """Return if the work has succeeded; raise its failure, or Snooze."""
