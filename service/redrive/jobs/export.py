"""A dead letter as one JSON object, from which its last attempt can be replayed."""

from typing import Any

from redrive.database.connections.connect import UNREADABLE
from redrive.database.rows import Connection, first_row
from redrive.dead_letters import find
from redrive.encryption import shown_noted, shown_payload, without_mark
from redrive.handlers.hand_over import is_sending
from redrive.jobs.reveal import reveal
from redrive.rules.attempts.seeds import seed_of
from redrive.rules.payloads.redact import redact, secret_values
from redrive.rules.rows import Fields, Row

BUNDLE = 1
"""Version of the format."""

COPIED = (
    *("id", "kind", "queue", "state", "reason", "category", "error_class", "message"),
    *("group", "redrives", "max_attempts", "tenant", "idempotency_key"),
    *("ordering_key", "created_at", "died_at", "failures"),
)
"""Fields that a bundle shares with `dlq show --json`."""

_NO_FAILURE: Fields = {}

_REST = """
    select d.kind, d.queue, d.tenant, d.idempotency_key, d.ordering_key, d.headers,
           d.payload,
           (select jsonb_build_object('delivery', p.deliveries, 'data', p.data)
            from redrive.checkpoints p where p.job = d.id) as checkpoint
    from redrive.dead_letters d where d.id = %s order by d.redrives desc limit 1"""


def export(
    conn: Connection, job: int, *, actor: str, why: str | None = None
) -> Row | None:
    """Return the bundle of a dead letter, or None if the job never died.

    Args:
        why: reason to keep the secrets, for the audit log; None = they are redacted.
    """
    letter = find.show(conn, job)
    rest = first_row(conn, _REST, job)
    if letter is None or rest is None:  # it may be purged meanwhile
        return None

    parts = _secret_parts(conn, letter, rest, actor=actor, why=why)
    if parts is None:
        return None

    copied = {name: letter[name] for name in COPIED}
    about = {"bundle": BUNDLE, "redacted": why is None}
    return about | copied | _attempt(letter) | parts


def _attempt(letter: Fields) -> Row:
    """Return the facts about the attempt of the last failure."""
    *_, last = letter["failures"] or [_NO_FAILURE]
    deliveries = last.get("deliveries", letter["deliveries"])
    detail: Fields = last.get("detail", {})

    return {
        "attempt": last.get("attempt", letter["attempts"]),
        "deliveries": deliveries,
        "started_at": detail.get("started_at") or last.get("at") or letter["died_at"],
        "seed": seed_of(letter["id"], deliveries),
        "version": detail.get("version"),
        "environment": detail.get("environment"),
    }


def _secret_parts(
    conn: Connection, letter: Fields, rest: Fields, *, actor: str, why: str | None
) -> Row | None:
    """Return payload, headers and checkpoint, redacted unless there is a reason.

    Returns None if the reason could not be recorded, because the job is gone.
    """
    checkpoint = opened_checkpoint(letter["id"], rest["checkpoint"])
    if why is None:
        payload = letter["payload"]
        headers = letter["headers"]
        checkpoint = _redacted(letter, rest, checkpoint)
    else:
        found = reveal(conn, letter["id"], actor=actor, why=why)
        if found is None:  # purged meanwhile, and nothing is on record
            return None

        payload = found["payload"]
        headers = rest["headers"]

    return {
        "payload": payload,
        "headers": without_mark(headers),
        "checkpoint": checkpoint,
    }


def _redacted(letter: Fields, rest: Fields, saved: Any) -> Any:
    """Return a checkpoint without the secrets of its job."""
    declared = find.declared_secret(letter["failures"])
    places = [shown_payload(rest), rest["headers"], saved]
    secrets = secret_values(places, declared)

    return redact(saved, declared, secrets)


def opened_checkpoint(job: int, checkpoint: Row | None) -> Row | None:
    """Return a checkpoint with its data decrypted."""
    if checkpoint is None:
        return None

    if UNREADABLE in checkpoint:
        return checkpoint

    delivery = checkpoint["delivery"]
    data = shown_noted(checkpoint["data"], "checkpoint", job, delivery)

    # A note that does not open has no data, and is exported with the reason.
    saved = data.get("data", data)
    if is_sending(saved):
        # A report that has this token ends the redrive.
        saved = {name: saved[name] for name in saved if name != "token"}

    return {"delivery": delivery, "data": saved}
