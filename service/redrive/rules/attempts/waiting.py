"""The reason why a job does not run: one answer from the state of job and system."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from redrive.rules.scheduling.concurrency import of_rate

QUIET_SECONDS = 60.0
"""Silence that is unusual: a worker with a free slot asks for jobs much more often."""

LATE_SECONDS = 60.0
"""Delay that is unusual: a job with nothing in its way starts much sooner."""

PUT_OFF_SECONDS = 900.0
"""Longest time between a breaker's possible close and the return of its jobs."""

MOST_AHEAD = 1000
"""Stop counting the jobs ahead of a job at this number."""

MINUTE, HOUR, DAY = 60, 3600, 86_400
MOST_SHOWN = 10


class Code(StrEnum):
    """Kinds of answers."""

    DUE = "due"
    RUNNING = "running"
    SCHEDULED = "scheduled"
    RETRYING = "retrying"
    QUEUE_PAUSED = "queue_paused"
    BEHIND_KEY = "behind_key"
    BATCH_RUNNING = "batch_running"
    BREAKER_OPEN = "breaker_open"
    LIMITED = "limited"
    NO_WORKER = "no_worker"
    NOT_POLLED = "not_polled"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Why:
    """Answer for machines (`code`) and for people (`text`)."""

    code: Code
    text: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause of a queue: its author, its reason and its time."""

    by: str
    why: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Breaker:
    """A breaker that is open or half open."""

    name: str
    state: str
    open_until: datetime | None = None
    forced_by: str | None = None
    forced_why: str | None = None


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker's last report, at the instant `seen`.

    `kinds`, `queues`: None = all. `asked`: instant of its last claim; None = not
    reported. `busy`: the number of its `slots` in use.
    """

    name: str
    kinds: Sequence[str] | None = None
    queues: Sequence[str] | None = None
    depends_on: Mapping[str, Sequence[str]] = field(
        default_factory=dict[str, Sequence[str]]
    )
    asked: datetime | None = None
    slots: int = 0
    busy: int = 0
    seen: datetime | None = None

    def serves(self, queue: str) -> bool:
        """Return True if the worker claims from a queue."""
        return self.queues is None or queue in self.queues

    def handles(self, kind: str) -> bool:
        """Return True if the worker has a handler for a kind."""
        return self.kinds is None or _matching(kind, self.kinds) is not None


@dataclass(frozen=True, slots=True)
class Around:
    """State of the system at `now`: pauses by queue, open breakers by name, workers.

    `gone`: workers that stopped reporting, until their records are deleted. Workers
    that ended normally leave no record. `seen`: instant of the last report of any
    worker.
    """

    now: datetime
    pauses: Mapping[str, Pause] = field(default_factory=dict[str, Pause])
    breakers: Mapping[str, Breaker] = field(default_factory=dict[str, Breaker])
    workers: Sequence[Worker] = ()
    gone: Sequence[Worker] = ()
    seen: datetime | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """First job of an ordering key; the job in question is at `place`, from 1."""

    key: str
    place: int
    job: int
    state: str
    run_at: datetime | None


@dataclass(frozen=True, slots=True)
class Hold:
    """Dead letter that holds a key; the job is at `place` behind it, from 1."""

    key: str
    place: int
    dead_letter: int


@dataclass(frozen=True, slots=True)
class Line:
    """Limit that a job waits for; the job is at `place`, from 1.

    `used`: how many of its `concurrency` run; None = any number may run. `rate`: jobs
    per second; None = no rate.
    """

    name: str
    place: int
    used: int
    concurrency: int | None
    rate: float | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A live job. `run_at` None: parked. `ahead`: due jobs before it in its lane.

    `worker`: the worker that has claimed it. `seconds`: how long it has run; None = it
    has not begun. `batch`: the batch whose end it waits for.
    """

    kind: str
    queue: str
    state: str
    run_at: datetime | None
    was_given_back: bool = False
    head: Head | None = None
    hold: Hold | None = None
    ahead: int | None = None
    worker: str | None = None
    seconds: float | None = None
    failed: str | None = None
    batch: int | None = None
    line: Line | None = None


def why(job: Waiting, around: Around) -> Why:
    """Return the reason why a live job does not run, or that it runs."""
    if job.state == "running":
        return _running(job)
    if job.batch is not None:
        text = f"it waits for batch {job.batch} to end: redrive batch show {job.batch}"
        return Why(Code.BATCH_RUNNING, text)
    if job.line is not None:
        return _limited(job.line, job, around)
    if job.hold is not None:
        return _held(job.hold)
    if job.head is not None or job.run_at is None:
        return _behind(job, around.now)
    breaker = _breaker(job, around)
    if job.run_at > around.now and not (
        breaker and _is_put_off(job, breaker, around.now)
    ):
        return _later(job, around)
    return (
        _paused(job.queue, around)
        or _without_worker(job, around)
        or (breaker and Why(Code.BREAKER_OPEN, _open(breaker, around.now)))
        or _not_asked(
            job.queue, [w for w in around.workers if _may_run(w, job)], around.now
        )
        or _due(job, around)
    )


def why_queue(queue: str, around: Around) -> Why | None:
    """Return the reason why no job of a queue runs; None if no obstacle is known."""
    serving = [worker for worker in around.workers if worker.serves(queue)]
    return _paused(queue, around) or (
        _not_asked(queue, serving, around.now)
        if serving
        else _nobody(
            queue, [worker for worker in around.gone if worker.serves(queue)], around
        )
    )


def ago(at: datetime, now: datetime) -> str:
    """Format the time between an instant and now: 3 min."""
    return span(abs((now - at).total_seconds()))


def span(seconds: float) -> str:
    """Format a duration in the unit that fits: 5 s, 3 min, 2 h, 4 days."""
    for unit, size in (("days", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= 2 * size or (size < DAY and seconds >= size):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def clock(at: datetime, now: datetime) -> str:
    """Format an instant in UTC; without the date if it is today."""
    at = at.astimezone(now.tzinfo)
    day = "" if at.date() == now.date() else f"{at:%Y-%m-%d} "
    return f"{day}{at:%H:%M:%S} UTC"


def _running(job: Waiting) -> Why:
    if job.seconds is None:
        return Why(
            Code.RUNNING,
            f"{job.worker} has fetched it and not begun: its slots are busy, or it"
            " began a moment ago",
        )
    return Why(Code.RUNNING, f"{job.worker} has run it for {span(job.seconds)}")


def _limited(line: Line, job: Waiting, around: Around) -> Why:
    more = " or later" if line.place > MOST_AHEAD else ""
    place = f"it is the {_nth(line.place)}{more} in line"
    if line.concurrency is not None and line.used >= line.concurrency:
        text = f"limit {line.name} holds {line.used} of {line.concurrency}; {place}"
    elif line.rate is not None:
        text = f"limit {line.name} lets {of_rate(line.rate)} begin; {place}"
    else:
        text = f"limit {line.name} has room; {place}, and will be woken within seconds"
    also = _paused(job.queue, around) or _without_worker(job, around)
    return Why(Code.LIMITED, f"{text}; also: {also.text}" if also else text)


def _behind(job: Waiting, now: datetime) -> Why:
    head = job.head
    if head is None:
        text = "it is the first of its ordering key and will be woken within seconds"
        return Why(Code.BEHIND_KEY, text)
    text = (
        f"it is the {_nth(head.place)} in line behind ordering key {head.key}; the first is job"
        f" {head.job}, which {_doing(head, now)}"
    )
    return Why(Code.BEHIND_KEY, text)


def _held(hold: Hold) -> Why:
    return Why(
        Code.BEHIND_KEY,
        f"it is the {_nth(hold.place)} in line behind ordering key {hold.key}, held by dead letter"
        f" {hold.dead_letter} (redrive or dismiss it)",
    )


def _doing(head: Head, now: datetime) -> str:
    match head.state:
        case "running":
            return "is running"
        case "retrying" | "scheduled" if head.run_at is not None:
            return f"is {head.state} until {clock(head.run_at, now)}"
        case "ready":
            return "is due"
        case _:
            return "will be woken within seconds"


def _breaker(job: Waiting, around: Around) -> Breaker | None:
    """Return an open breaker on which the job's handler depends, as workers report."""
    for worker in around.workers:
        kind = _matching(job.kind, list(worker.depends_on))
        for name in worker.depends_on.get(kind or "", ()):
            if name in around.breakers:
                return around.breakers[name]
    return None


def _is_put_off(job: Waiting, breaker: Breaker, now: datetime) -> bool:
    """Return True if the job was released until soon after a breaker may close."""
    until = max(breaker.open_until or now, now)
    at = job.run_at
    return (
        job.was_given_back
        and at is not None
        and at <= until + timedelta(seconds=PUT_OFF_SECONDS)
    )


def _open(breaker: Breaker, now: datetime) -> str:
    if breaker.forced_by is not None:
        return f"{breaker.forced_by} holds breaker {breaker.name} open: {breaker.forced_why}"
    if breaker.state == "half_open":
        return f"breaker {breaker.name} is half open: one job at a time tries the dependency"
    if breaker.open_until is None:
        return f"breaker {breaker.name} is open"
    return f"breaker {breaker.name} is open until {clock(breaker.open_until, now)}"


def _later(job: Waiting, around: Around) -> Why:
    assert job.run_at is not None  # noqa: S101 # the caller checks it
    code = Code.RETRYING if job.state == "retrying" else Code.SCHEDULED
    text = f"it is due in {ago(job.run_at, around.now)}, at {clock(job.run_at, around.now)}"
    if code is Code.RETRYING and job.failed:
        text += f"; its last attempt failed: {job.failed}"
    also = _paused(job.queue, around)
    return Why(code, f"{text}; until then and after: {also.text}" if also else text)


def _paused(queue: str, around: Around) -> Why | None:
    pause = around.pauses.get(queue)
    if pause is None:
        return None
    since = clock(pause.at, around.now)
    return Why(
        Code.QUEUE_PAUSED, f"{pause.by} paused queue {queue} at {since}: {pause.why}"
    )


def _without_worker(job: Waiting, around: Around) -> Why | None:
    if any(_may_run(worker, job) for worker in around.workers):
        return None
    elsewhere = {
        queue
        for worker in around.workers
        if worker.handles(job.kind)
        for queue in worker.queues or ()
    }
    has_any = any(worker.serves(job.queue) for worker in around.workers)
    if not has_any and not elsewhere:
        able = [worker for worker in around.gone if _may_run(worker, job)]
        return _nobody(job.queue, able, around)
    text = f"no live worker handles {job.kind} on queue {job.queue}"
    if elsewhere:
        text += f"; workers for it serve: {_some(sorted(elsewhere))}"
    handled = {
        kind
        for worker in around.workers
        if worker.serves(job.queue)
        for kind in worker.kinds or ()
    }
    if handled:
        text += f"; workers of this queue handle: {_some(sorted(handled))}"
    return Why(Code.NO_WORKER, text)


def _nobody(queue: str, gone: Sequence[Worker], around: Around) -> Why:
    """Explain that no worker serves the queue; name silent workers that would."""
    text = f"no live worker serves queue {queue}"
    served = {name for worker in around.workers for name in worker.queues or ()}
    if served:
        text += f"; the live ones serve: {_some(sorted(served))}"
    instants = [worker.seen for worker in gone if worker.seen is not None]
    if instants:
        text += f"; one that would was last seen {ago(max(instants), around.now)} ago"
    elif not around.workers and around.seen is not None:
        text += f"; the last worker of any queue was seen {ago(around.seen, around.now)} ago"
    return Why(Code.NOT_POLLED, text)


def _not_asked(queue: str, workers: Sequence[Worker], now: datetime) -> Why | None:
    """Explain that all workers that could run the job are alive but do not claim."""
    asked = [worker.asked for worker in workers if worker.asked is not None]
    if len(asked) < len(workers) or not asked:
        return None
    quiet = (now - max(asked)).total_seconds()
    if quiet < QUIET_SECONDS:
        return None
    return Why(
        Code.NOT_POLLED,
        f"nobody has polled queue {queue} for {span(quiet)}: {_slots(workers)}",
    )


def _due(job: Waiting, around: Around) -> Why:
    assert job.run_at is not None  # noqa: S101 # parked jobs are behind a key
    late = (around.now - job.run_at).total_seconds()
    able = [worker for worker in around.workers if _may_run(worker, job)]
    parts = [f"it has been due for {span(max(0.0, late))}"]
    if job.ahead is not None:
        more = " or more" if job.ahead >= MOST_AHEAD else ""
        parts.append(f"{job.ahead}{more} due jobs stand before it in its lane")
    parts.append(_slots(able))
    if late > LATE_SECONDS and not job.ahead:
        parts.append(
            "it should run by now: look for more urgent priorities, for a transaction that holds"
            " its lane, and at redrive check"
        )
    return Why(Code.DUE, "; ".join(parts))


def _slots(workers: Sequence[Worker]) -> str:
    slots, busy = sum(w.slots for w in workers), sum(w.busy for w in workers)
    n = len(workers)
    said = f"{n} live worker{'' if n == 1 else 's'} can run it"
    return f"{said}, {busy} of {slots} slots busy" if slots else said


def _may_run(worker: Worker, job: Waiting) -> bool:
    return worker.serves(job.queue) and worker.handles(job.kind)


def _matching(kind: str, kinds: Sequence[str]) -> str | None:
    """Return the kind or the longest prefix with a star that covers a job's kind."""
    if kind in kinds:
        return kind
    prefixes = (k for k in kinds if k.endswith("*") and kind.startswith(k[:-1]))
    return max(prefixes, key=len, default=None)


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_SHOWN
    return ", ".join(names[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _nth(n: int) -> str:
    """Return an ordinal, in words up to three."""
    return {1: "first", 2: "second", 3: "third"}.get(n, f"{n}th")
