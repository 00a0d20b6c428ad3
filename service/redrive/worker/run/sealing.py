"""Encryption at both ends of an attempt: what it reads is opened, what it says sealed.

Without a keyring, texts stay as they are. The functions that open raise Undecryptable.
"""

from dataclasses import replace
from typing import Any

import msgspec

from redrive.encryption import Keyring, Whose, open_noted, open_payload
from redrive.handlers import encode_json
from redrive.rules.attempts.settlement import DeadLetter, NotComplete, Retry
from redrive.rules.model import Reason
from redrive.rules.rows import Fields
from redrive.worker.protocol import LastCheckpoint, SideEffect, Work, read_extras

Key = tuple[int, int]
"""A job's id, and the delivery."""


def opened_work(keyring: Keyring | None, work: Work, queue: str) -> Work:
    """Return a job with its payload decrypted."""
    extras = read_extras(work.extras)
    keys = extras.tenant, extras.idempotency_key, extras.ordering_key
    payload = open_payload(
        keyring, work.payload, Whose(work.kind, queue, *keys), extras.headers
    )

    return msgspec.structs.replace(work, payload=payload.decode())


def opened_checkpoint(
    keyring: Keyring | None, last: LastCheckpoint, job: int
) -> dict[str, Any]:
    """Return the data of the last checkpoint of a job."""
    opened = open_noted(
        keyring, value=last.data, what="checkpoint", job=job, delivery=last.delivery
    )
    return opened["data"]


def sealed_note(keyring: Keyring | None, note: Fields, what: str, key: Key) -> str:
    """Return a note of a handler as JSON; `what` names the type of note."""
    if keyring is not None:
        note = keyring.seal_record(note, what, *key)
    return encode_json(note).decode()


def sealed_side_effect(
    keyring: Keyring | None, what: str, detail: dict[str, Any], key: Key
) -> SideEffect:
    """Return the message that reports a side effect."""
    if keyring is not None:
        what, detail = keyring.seal_side_effect(what, detail, *key)
    return SideEffect(*key, what, encode_json(detail).decode())


def sealed_settlement(
    keyring: Keyring | None, settlement: NotComplete, key: Key
) -> NotComplete:
    """Return a settlement with its failure sealed."""
    if keyring is None or not isinstance(settlement, Retry | DeadLetter):
        return settlement
    # The failure of a payload that cannot be decrypted says nothing about its content.
    if isinstance(settlement, DeadLetter) and settlement.reason is Reason.UNDECRYPTABLE:
        return settlement

    sealed = keyring.seal_failure(settlement.failure.record(), *key)
    failure = replace(
        settlement.failure, message=sealed["message"], detail=sealed["detail"]
    )

    return replace(settlement, failure=failure)
