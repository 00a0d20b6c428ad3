"""Context of a handler: its job, and what it can do with it."""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec

from redrive.database import drivers as sql_drivers
from redrive.errors import StaleClaim
from redrive.rules.payloads.limits import encode_object
from redrive.rules.payloads.redact import redact

MAX_SIDE_EFFECT_BYTES = 2_048
MAX_SIDE_EFFECT_CHARACTERS = 200
MAX_CHECKPOINT_BYTES = 65_536
MAX_PROGRESS_CHARACTERS = 200

COMPLETE = "select redrive.complete_in_transaction_v1(%s, %s, %s)"


class Watch:
    """Receiver of calls to `Job.dependency`; this one lets everything through."""

    def enter(self, name: str) -> None:
        """A dependency is about to be used. May raise DependencyOpen."""

    def leave(self, name: str, error: Exception | None) -> None:
        """Record the use of a dependency: `error` is why it failed, or None."""


class Notes:
    """Receiver of `Job.progress` and `Job.checkpoint`; this one keeps nothing."""

    def progress(self, share: float, text: str) -> None:
        """The work is so far. Any thread may say so, as often as it likes."""

    def checkpoint(self, data: str) -> "Future[bool]":
        """Store a checkpoint. The future is False if another worker has the job now."""
        kept: Future[bool] = Future()
        kept.set_result(bool(data))
        return kept


class Job:
    """The job an attempt is for.

    Attributes:
        id: for life, through retries and redrives.
        kind, queue: what it is, where it waited.
        attempt: from 1; starts again at 1 after a redrive.
        deliveries: how often it was ever claimed; only grows, so other systems can use it as a
            fencing token.
        key: its idempotency key, or its id and the instant it was enqueued at: the same for every
            attempt. Send it to whoever can deduplicate.
        deadline: when this attempt will be stopped, UTC.
        redrives: how often it came back from the dead letters.
        tenant, headers: as enqueued.
        scheduled_for: the slot for which its schedule enqueued it; None: no schedule did.
        cancelled: an operator wants it no longer. An async handler is cancelled then; a plain one
            looks here now and then, and returns or raises. Ten seconds later its process is killed.
        last_checkpoint: what an attempt before this one gave to `checkpoint`; None = nothing.
    """

    __slots__ = (
        "_completed_on",
        "_notes",
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
        "tenant",
    )

    def __init__(  # noqa: PLR0913 # a record
        self,
        *,
        id: int,  # noqa: A002 # its name everywhere
        kind: str,
        queue: str = "default",
        attempt: int = 1,
        deliveries: int = 1,
        key: str | None = None,
        created: float = 0.0,
        deadline: datetime,
        redrives: int = 0,
        tenant: str | None = None,
        headers: Mapping[str, Any] | None = None,
        worker: int = 0,
        tell: Callable[[str, dict[str, Any]], None] = lambda _what, _detail: None,
        watch: "Watch | None" = None,
        notes: Notes | None = None,
        last_checkpoint: dict[str, Any] | None = None,
    ) -> None:
        self.id = id
        self.kind = kind
        self.queue = queue
        self.attempt = attempt
        self.deliveries = deliveries
        # An id may come again after a failover that lost it; with the instant it does not.
        self.key = key or f"{id}-{round(created * 1e6)}"
        self.deadline = deadline
        self.redrives = redrives
        self.tenant = tenant
        self.headers = dict(headers or {})
        self.cancelled = False
        self._worker = worker
        self._tell = tell
        self._watch = watch or Watch()
        self._notes = notes or Notes()
        self.last_checkpoint = last_checkpoint
        self._completed_on: Any = None

    @property
    def scheduled_for(self) -> datetime | None:
        """The slot for which its schedule enqueued it, UTC; None: no schedule did."""
        try:
            return datetime.fromisoformat(self.headers["scheduled_for"])
        except (KeyError, TypeError, ValueError):  # a producer may have a header of that name
            return None

    def side_effect(self, what: str, **detail: Any) -> None:
        """Record what was just done in the world: `job.side_effect("charged", id=charge.id)`.

        It is kept with the job and shown before anybody redrives it. Call it from the handler,
        after the deed.

        Args:
            what: at most 200 characters.
            detail: small and JSON; keys that sound secret are left out.

        Raises:
            InvalidJob: the detail is not JSON, or more than 2 KiB of it.
        """
        text = encode_object("side_effect", redact(detail), MAX_SIDE_EFFECT_BYTES)
        self._tell(what[:MAX_SIDE_EFFECT_CHARACTERS].replace("\0", ""), msgspec.json.decode(text))

    def progress(self, share: float, text: str = "") -> None:
        """Say how far the work is: `job.progress(0.4, "page 40 of 100")`, for `redrive job show`.

        Call it as often as you like: once a second the newest is passed on.

        Args:
            share: from 0 to 1; what lies outside is taken for the nearest of them.
            text: at most 200 characters.

        Raises:
            ValueError: the share is not a number.
        """
        if math.isnan(share):
            msg = "job.progress(share): must be a number from 0 to 1"
            raise ValueError(msg)
        kept = text[:MAX_PROGRESS_CHARACTERS].replace("\0", "")
        self._notes.progress(min(1.0, max(0.0, float(share))), kept)

    def checkpoint(self, data: Mapping[str, Any]) -> Any:
        """Keep what the next attempt is to go on from; it gets this as `job.last_checkpoint`.

        Returns once it is committed. It outlives a retry, a crash, the dead letters and a redrive,
        and is gone when the job has succeeded. A later one takes its place.

        Args:
            data: a JSON object of at most 64 KiB; in an async handler, await the result.

        Raises:
            InvalidJob: the data is not such an object.
            RuntimeError: the job was completed already, by `job.complete()`.
            StaleClaim: another worker has the job by now; stop.
        """
        text = encode_object("checkpoint", data, MAX_CHECKPOINT_BYTES)
        if self._completed_on is not None:
            msg = "job.checkpoint() after job.complete(): there is no next attempt"
            raise RuntimeError(msg)
        kept = self._notes.checkpoint(text)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._refuse_stale(kept.result())
        return self._when_kept(asyncio.wrap_future(kept))

    async def _when_kept(self, kept: "asyncio.Future[bool]") -> None:
        self._refuse_stale(await kept)

    @contextmanager
    def dependency(self, name: str) -> Iterator[None]:
        """Use a dependency of part of the work; what happens inside counts for its breaker.

        Raises:
            DependencyOpen: its breaker is open; let it pass, and the job comes back later with its
                attempt refunded.
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

        The handler's writes and the end of the job commit together or not at all. Commit before the
        handler returns.

        Args:
            conn: of psycopg, SQLAlchemy, Django or asyncpg; with an async one, await the result.

        Raises:
            StaleClaim: another worker holds the job by now; roll back.
        """
        self._completed_on = sql_drivers.itself(conn)
        return sql_drivers.scalar(
            conn, COMPLETE, (self._worker, self.id, self.deliveries), self._refuse_stale
        )

    def _refuse_stale(self, settled: object) -> None:
        if settled is not True:
            msg = (
                f"job {self.id} (delivery {self.deliveries}) is no longer this worker's; roll back"
            )
            raise StaleClaim(msg)

    @property
    def completed_on(self) -> Any:
        """The connection `complete` was called with, or None."""
        return self._completed_on
