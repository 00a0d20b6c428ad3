"""Sampler of successful jobs, which are compared with dead letters.

A sample holds no content (rules/payloads/facts.py), and nothing of an encrypted
payload.
"""

import contextlib
from collections import Counter
from collections.abc import Callable

from redrive.encryption import MARK
from redrive.handlers import decode_object, encode_json
from redrive.rules.payloads.facts import MAX_PAYLOAD, facts_of
from redrive.worker.protocol import Sampled
from redrive.worker.run.attempt import Attempt
from redrive.worker.run.own import clock

OF_ANY_SECONDS = 0.1
"""Time between two samples of one runner."""
FIRST = 20
"""First samples of a kind come at once: enough to compare with a short run."""
OF_KIND_SECONDS, MAX_OF_KIND_SECONDS = 1.0, 1296.0
"""Time between two samples of a kind: at first, and after three days."""
SIZE = 200
"""Size of a reservoir: the more time it covers, the fewer samples it needs."""
MAX_KINDS = 1000


class Sampler:
    """Sends samples of jobs that succeeded."""

    def __init__(self, send: Callable[[Sampled], None]) -> None:
        self._send = send
        self._began = clock.monotonic()
        self._due_at = 0.0
        self._due_by_kind: dict[str, float] = {}
        self._sent_by_kind = Counter[str]()

    def offer(self, attempt: Attempt) -> None:
        """Sample a job that succeeded and may be sampled, if it is time."""
        now = clock.monotonic()
        kind = attempt.work.kind
        is_first = self._sent_by_kind[kind] < FIRST
        kind_due_at = self._due_by_kind.get(kind, 0.0)
        if now < max(self._due_at, kind_due_at) and not is_first:
            return

        self._sampled(kind, now)
        with contextlib.suppress(Exception):  # no sample is worth a runner
            self._send(Sampled(kind, encode_json(_facts(attempt)).decode()))

    def _sampled(self, kind: str, now: float) -> None:
        """Set when the next sample of this kind, and of any kind, is due."""
        self._due_at = now + OF_ANY_SECONDS
        # Any number of kinds may come, so this memory has a limit.
        if len(self._due_by_kind) >= MAX_KINDS:
            self._due_by_kind.clear()
            self._sent_by_kind.clear()

        self._sent_by_kind[kind] += 1
        longer = max(OF_KIND_SECONDS, (now - self._began) / SIZE)
        self._due_by_kind[kind] = now + min(longer, MAX_OF_KIND_SECONDS)


def _facts(attempt: Attempt) -> dict[str, object]:
    work = attempt.work
    extras = attempt.extras
    where = attempt.services.where

    # A large payload is not read, neither for its facts nor for its secrets.
    is_small = len(work.payload) <= MAX_PAYLOAD
    is_sealed = attempt.services.keyring is not None or MARK in extras.headers
    payload = decode_object(work.payload) if is_small and not is_sealed else None
    found = facts_of(
        payload,
        extras.headers,
        extras.tenant,
        declared=attempt.handler.secret,
        secrets=attempt.secrets() if is_small else attempt.services.secrets,
    )

    place = {
        name: where[name]
        for name in ("environment", "version", "node", "pod")
        if name in where
    }

    return {**found, **place, "queue": attempt.queue}
