"""The job that a handler receives, and the calls it can make on it."""

import asyncio
import math
import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec

from redrive.database import drivers as sql_drivers
from redrive.errors import StaleClaim
from redrive.rules.attempts.seeds import seed_of
from redrive.rules.payloads.limits import encode_object
from redrive.rules.payloads.redact import redact

MAX_SIDE_EFFECT_BYTES = 2_048
MAX_SIDE_EFFECT_CHARACTERS = 200
MAX_CHECKPOINT_BYTES = 65_536
MAX_PROGRESS_CHARACTERS = 200

COMPLETE = "select redrive.complete_in_transaction_v1(%s, %s, %s)"


class Watch:
    """Receiver of calls to `Job.dependency`; this base class allows every call."""

    def enter(self, name: str) -> None:
        """Record that a dependency is about to be used. May raise DependencyOpen."""

    def leave(self, name: str, error: Exception | None) -> None:
        """Record that a dependency was used; `error` is its failure, or None."""


class Notes:
    """Receiver of `Job.progress` and `Job.checkpoint`; this class stores nothing."""

    def progress(self, share: float, text: str) -> None:
        """Record the progress of the work. Any thread may call this at any rate."""

    def checkpoint(self, data: str) -> "Future[bool]":
        """Store a checkpoint. The future is False if another worker has the job now."""
        kept: Future[bool] = Future()
        kept.set_result(bool(data))
        return kept


class Job:
    """The job that an attempt runs.

    Attributes:
        id: the job's id; it stays the same through retries and redrives.
        kind, queue: its kind, and the queue that it waited in.
        attempt: the number of this attempt, from 1; a redrive starts again at 1.
        deliveries: how often the job was claimed in all. It only grows, so other
            systems can use it as a fencing token.
        key: the idempotency key, or the id and the instant of the enqueue if it has no
            key. It is the same for every attempt. Send it to services that can
            deduplicate requests.
        deadline: when this attempt will be stopped, UTC.
        redrives: how often the job was redriven from the dead letters.
        source: the source of the import that brought a redriven job in, or None if it
            was enqueued.
        tenant, headers: as enqueued.
        scheduled_for: the slot for which a schedule enqueued the job, or None.
        cancelled: True after an operator cancelled the job. An async handler is
            cancelled at that moment. A plain handler should check this now and then,
            and return or raise. After ten more seconds its process is killed.
        last_checkpoint: the data that an earlier attempt gave to `checkpoint`, or None.
    """

    __slots__ = (
        "_completed_on",
        "_notes",
        "_random",
        "_seed",
        "_tell",
        "_watch",
        "_worker",
        "attempt",
        "cancelled",
        "deadline",
        "deliveries",
        "headers",
        "id",
        "key",
        "kind",
        "last_checkpoint",
        "queue",
        "redrives",
        "source",
        "tenant",
    )

    def __init__(  # noqa: PLR0913 # one argument for each attribute
        self,
        *,
        id: int,  # noqa: A002 # `id` is its name everywhere
        kind: str,
        queue: str = "default",
        attempt: int = 1,
        deliveries: int = 1,
        key: str | None = None,
        created: float = 0.0,
        deadline: datetime,
        redrives: int = 0,
        source: str | None = None,
        tenant: str | None = None,
        headers: Mapping[str, Any] | None = None,
        worker: int = 0,
        tell: Callable[[str, dict[str, Any]], None] = lambda _what, _detail: None,
        watch: "Watch | None" = None,
        notes: Notes | None = None,
        last_checkpoint: dict[str, Any] | None = None,
        seed: str | None = None,
    ) -> None:
        self.id = id
        self.kind = kind
        self.queue = queue
        self.attempt = attempt
        self.deliveries = deliveries
        # A failover may assign an id again; the instant keeps the key unique.
        self.key = key or f"{id}-{round(created * 1e6)}"
        self.deadline = deadline
        self.redrives = redrives
        self.source = source
        self.tenant = tenant
        self.headers = dict(headers or {})
        self.cancelled = False

        self._worker = worker
        self._tell = tell
        self._watch = watch or Watch()
        self._notes = notes or Notes()
        self.last_checkpoint = last_checkpoint

        self._completed_on: Any = None
        self._seed = seed or seed_of(id, deliveries)
        self._random: random.Random | None = None

    @property
    def random(self) -> random.Random:
        """Return random numbers that `redrive job replay` can repeat.

        Each attempt has others. Never use them for secrets.
        """
        if self._random is None:
            self._random = random.Random(self._seed)
        return self._random

    @property
    def scheduled_for(self) -> datetime | None:
        """Return the slot for which a schedule enqueued the job, UTC, or None."""
        try:
            return datetime.fromisoformat(self.headers["scheduled_for"])
        except (
            KeyError,
            TypeError,
            ValueError,
        ):  # a producer may have a header of that name
            return None

    def side_effect(self, what: str, **detail: Any) -> None:
        """Record a change that the handler just made outside of the database.

            job.side_effect("charged", id=charge.id)

        The record is kept with the job and shown before anyone redrives it. Call this
        from the handler, after the change was made.

        Args:
            what: a short description, at most 200 characters.
            detail: small JSON values; keys whose names sound secret are left out.

        Raises:
            InvalidJob: the detail is not JSON, or is larger than 2 KiB.
        """
        text = encode_object("side_effect", redact(detail), MAX_SIDE_EFFECT_BYTES)
        # Postgres keeps no NUL in a text.
        self._tell(
            what[:MAX_SIDE_EFFECT_CHARACTERS].replace("\0", ""),
            msgspec.json.decode(text),
        )

    def progress(self, share: float, text: str = "") -> None:
        """Report the progress of the work, shown by `redrive job show`.

            job.progress(0.4, "page 40 of 100")

        Call it as often as you like. Only the newest report is sent, once a second.

        Args:
            share: from 0 to 1; a value outside is replaced by the nearest limit.
            text: at most 200 characters.

        Raises:
            ValueError: the share is not a number.
        """
        if math.isnan(share):
            msg = "job.progress(share): must be a number from 0 to 1"
            raise ValueError(msg)

        # Postgres keeps no NUL in a text.
        kept = text[:MAX_PROGRESS_CHARACTERS].replace("\0", "")
        self._notes.progress(min(1.0, max(0.0, float(share))), kept)

    def checkpoint(self, data: Mapping[str, Any]) -> Any:
        """Store data for the next attempt, which reads it as `job.last_checkpoint`.

        Returns after the commit. The data survives a retry, a crash, the dead letters
        and a redrive. It is deleted when the job succeeds. A later checkpoint replaces
        it.

        Args:
            data: a JSON object of at most 64 KiB. In an async handler, await the
                result.

        Raises:
            InvalidJob: the data is not such an object.
            RuntimeError: `job.complete()` has already completed the job.
            StaleClaim: another worker has claimed the job; stop the work.
        """
        text = encode_object("checkpoint", data, MAX_CHECKPOINT_BYTES)
        if self._completed_on is not None:
            msg = "job.checkpoint() after job.complete(): there is no next attempt"
            raise RuntimeError(msg)

        kept = self._notes.checkpoint(text)
        # A plain handler has no event loop, so its call waits for the answer.
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._refuse_stale(kept.result())

        return self._when_kept(asyncio.wrap_future(kept))

    async def _when_kept(self, kept: "asyncio.Future[bool]") -> None:
        self._refuse_stale(await kept)

    @contextmanager
    def dependency(self, name: str) -> Iterator[None]:
        """Use a dependency for part of the work; the result counts for its breaker.

        Raises:
            DependencyOpen: the breaker is open. Do not catch it: the job is released
                with its attempt refunded, and runs again later.
        """
        self._watch.enter(name)
        try:
            yield
        except Exception as error:
            self._watch.leave(name, error)
            raise

        self._watch.leave(name, None)

    def complete(self, conn: Any) -> Any:
        """Complete the job in the transaction that is open on `conn`.

        The handler's writes and the end of the job commit together or not at all.
        Commit before the handler returns.

        Args:
            conn: a connection of psycopg, SQLAlchemy, Django or asyncpg. With an async
                connection, await the result.

        Raises:
            StaleClaim: another worker has claimed the job; roll back.
        """
        self._completed_on = sql_drivers.itself(conn)
        return sql_drivers.scalar(
            conn, COMPLETE, (self._worker, self.id, self.deliveries), self._refuse_stale
        )

    def _refuse_stale(self, settled: object) -> None:
        if settled is not True:
            msg = f"job {self.id} (delivery {self.deliveries}) is no longer this worker's; roll back"
            raise StaleClaim(msg)

    @property
    def completed_on(self) -> Any:
        """Return the connection that `complete` was called with, or None."""
        return self._completed_on
