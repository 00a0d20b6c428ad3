"""The reason why a job does not run: one answer from the state of job and system.

A new reason is a `Code`, the fact that it needs in `facts.py` beside this file, and an
answer here. Lists, pages, and the table of docs/jobs.md take it from here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from redrive.rules.brief import counted
from redrive.rules.concurrency import of_rate
from redrive.rules.instants import ago, clock, span

QUIET_SECONDS = 60.0
"""Silence that is unusual: a worker with a free slot asks for jobs much more often."""

LATE_SECONDS = 60.0
"""Delay that is unusual: a job with nothing in its way starts much sooner."""

PUT_OFF_SECONDS = 900.0
"""Longest time between a breaker's possible close and the return of its jobs."""

MOST_AHEAD = 1000
"""Stop counting the jobs ahead of a job at this number."""

MOST_SHOWN = 10


_TOO_LATE = (
    "it should run by now: look for more urgent priorities, for a transaction that holds"
    " its lane, and at redrive check"
)


class Code(StrEnum):
    """Kinds of answers; `says` is what the text of each says, for the docs."""

    says: str

    RUNNING = (
        "running",
        (
            "which worker runs the job and for how long, or that the worker fetched it and has not"
            " started it"
        ),
    )
    SCHEDULED = "scheduled", "when the job is due"
    RETRYING = "retrying", "when the job is due, and how its last attempt failed"
    BEHIND_KEY = (
        "behind_key",
        (
            "the job's position behind its ordering key, which job is first, and what that job does;"
            " or which dead letter [holds](order-and-fairness.md#after-a-death) the key"
        ),
    )
    BATCH_RUNNING = (
        "batch_running",
        "the [batch](batches.md) whose end the job waits for",
    )
    LIMITED = (
        "limited",
        (
            "the [limit](concurrency.md) that the job waits for, how much of the limit is used, and"
            " the job's position"
        ),
    )
    QUEUE_PAUSED = "queue_paused", "who paused the queue, when and why"
    HELD = (
        "held",
        "who [holds the group](failures.md#before-jobs-die) of the failing job, when and why",
    )
    BREAKER_OPEN = (
        "breaker_open",
        (
            "the breaker that its handler waits for and until when, or who holds the breaker open and"
            " why"
        ),
    )
    NO_WORKER = (
        "no_worker",
        "that no live worker handles the kind on this queue, and which queues have workers for it",
    )
    NOT_POLLED = (
        "not_polled",
        (
            "that no live worker serves the queue; or that its workers have not polled for a minute or"
            " more, and how many of their slots are busy"
        ),
    )
    DUE = (
        "due",
        (
            "how long the job has been due, and how many due jobs stand before it in its lane;"
            " what to check if no job does"
        ),
    )
    IN_CAMPAIGN = (
        "in_campaign",
        "why the job died, and which running [campaign](campaigns.md) will redrive it",
    )
    ENDED = "ended", "how the job ended; if it died, what redrives it"

    def __new__(cls, value: str, says: str) -> Self:
        """Return a code with what its text says."""
        code = str.__new__(cls, value)
        code._value_ = value
        code.says = says
        return code

    @property
    def is_lack_of_workers(self) -> bool:
        """Return True if it says no more than that no worker is there."""
        return self in {Code.NO_WORKER, Code.NOT_POLLED}


@dataclass(frozen=True, slots=True)
class Why:
    """Answer for machines (`code`) and for people (`text`)."""

    code: Code
    text: str

    @property
    def waiting_for(self) -> str | None:
        """Return what a live job waits for; None if it runs or only waits its turn."""
        if self.code in {Code.RUNNING, Code.DUE}:
            return None
        return str(self.code)

    def fields(self) -> dict[str, str]:
        """Return the answer as JSON has it."""
        return {"code": str(self.code), "text": self.text}


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
        if self.kinds is None:
            return True
        return _matching(kind, self.kinds) is not None


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
    """A live job. `run_at` None: it waits for a batch, a limit, its ordering key, or
    for somebody who holds its group; the last one only if it is retrying.

    `ahead`: due jobs before it in its lane.

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
    hold_of_group: Pause | None = None


@dataclass(frozen=True, slots=True)
class Dead:
    """An open dead letter, and its reason.

    `over`: why its retries ended, if its window did it. `campaign`: the running
    campaign that will redrive it.
    """

    job: int
    reason: str
    over: str | None = None
    campaign: int | None = None


def why_dead(dead: Dead) -> Why:
    """Say why a job died, and what redrives it."""
    cause = dead.reason
    if dead.over:
        cause += f", because {dead.over}"

    if dead.campaign is not None:
        coming = f"campaign {dead.campaign} will redrive it"
        return Why(Code.IN_CAMPAIGN, f"it died: {cause}; {coming}")

    remedy = f"to redrive it: redrive dlq redrive {dead.job}"
    return Why(Code.ENDED, f"it died: {cause}; {remedy}")


def why(job: Waiting, around: Around) -> Why:
    """Return the reason why a live job does not run, or that it runs.

    The first reason that applies is the answer: what the job itself waits for comes
    before what its queue and its workers wait for. A text also names a later reason
    ("also: ...") if the job would still not run when the first one ends.
    """
    if job.state == "running":
        return _running(job)
    if job.batch is not None:
        batch = f"batch {job.batch} to end: redrive batch show {job.batch}"
        return Why(Code.BATCH_RUNNING, f"it waits for {batch}")
    if job.line is not None:
        return _limited(job.line, job, around)
    if job.hold is not None:
        return _behind_dead_letter(job.hold)
    if job.state == "retrying" and job.run_at is None:
        return _group_held(job, around.now)
    if job.head is not None or job.run_at is None:
        return _behind(job, around.now)

    return _unordered(job, job.run_at, around)


def _unordered(job: Waiting, run_at: datetime, around: Around) -> Why:
    """Return the reason why a job that waits for no other job does not run."""
    breaker = _breaker(job, around)
    is_put_off = breaker is not None and _is_put_off(job, breaker, around.now)

    # A breaker puts its jobs off until it may close. Then the breaker is the reason,
    # and not the time.
    if run_at > around.now and not is_put_off:
        return _later(job, run_at, around)

    able = [worker for worker in around.workers if _may_run(worker, job)]
    return (
        _paused(job.queue, around)
        or _without_worker(job, around)
        or (breaker and Why(Code.BREAKER_OPEN, _open(breaker, around.now)))
        or _not_asked(job.queue, able, around.now)
        or _due(job, run_at, able, around.now)
    )


def why_queue(queue: str, around: Around) -> Why | None:
    """Return the reason why no job of a queue runs; None if no obstacle is known."""
    serving = [worker for worker in around.workers if worker.serves(queue)]
    paused = _paused(queue, around)
    if paused is not None:
        return paused
    if serving:
        return _not_asked(queue, serving, around.now)

    gone = [worker for worker in around.gone if worker.serves(queue)]
    return _nobody(queue, gone, around)


def _running(job: Waiting) -> Why:
    if job.seconds is None:
        why_not = "its slots are busy, or it began a moment ago"
        text = f"{job.worker} has fetched it and not begun: {why_not}"
        return Why(Code.RUNNING, text)

    return Why(Code.RUNNING, f"{job.worker} has run it for {span(job.seconds)}")


def _limited(line: Line, job: Waiting, around: Around) -> Why:
    text = f"limit {line.name} {_use(line)}"
    also = _paused(job.queue, around) or _without_worker(job, around)
    if also is not None:
        text += f"; also: {also.text}"

    return Why(Code.LIMITED, text)


def _use(line: Line) -> str:
    """Say what the limit does at the moment, and the job's place in line."""
    # Counting stops at MOST_AHEAD, so the true place may be a later one.
    or_later = " or later" if line.place > MOST_AHEAD else ""
    place = f"it is the {_nth(line.place)}{or_later} in line"
    if line.concurrency is not None and line.used >= line.concurrency:
        return f"holds {line.used} of {line.concurrency}; {place}"
    if line.rate is not None:
        return f"lets {of_rate(line.rate)} begin; {place}"

    return f"has room; {place}, and will be woken within seconds"


def _behind(job: Waiting, now: datetime) -> Why:
    head = job.head
    if head is None:
        text = "it is the first of its ordering key and will be woken within seconds"
        return Why(Code.BEHIND_KEY, text)

    place = _place_behind(head.place, head.key)
    text = f"{place}; the first is job {head.job}, which {_doing(head, now)}"

    return Why(Code.BEHIND_KEY, text)


def _behind_dead_letter(hold: Hold) -> Why:
    place = _place_behind(hold.place, hold.key)
    holder = f"held by dead letter {hold.dead_letter} (redrive or dismiss it)"
    return Why(Code.BEHIND_KEY, f"{place}, {holder}")


def _place_behind(place: int, key: str) -> str:
    return f"it is the {_nth(place)} in line behind ordering key {key}"


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
    if not job.was_given_back or job.run_at is None:
        return False

    closes_at = max(breaker.open_until or now, now)
    return job.run_at <= closes_at + timedelta(seconds=PUT_OFF_SECONDS)


def _open(breaker: Breaker, now: datetime) -> str:
    name = f"breaker {breaker.name}"
    if breaker.forced_by is not None:
        return f"{breaker.forced_by} holds {name} open: {breaker.forced_why}"
    if breaker.state == "half_open":
        return f"{name} is half open: one job at a time tries the dependency"
    if breaker.open_until is None:
        return f"{name} is open"

    return f"{name} is open until {clock(breaker.open_until, now)}"


def _group_held(job: Waiting, now: datetime) -> Why:
    text = "its group is held"
    hold = job.hold_of_group
    if hold is not None:
        text = f"{hold.by} holds its group since {clock(hold.at, now)}: {hold.why}"
    if job.failed:
        text += f"; its last attempt failed: {job.failed}"

    return Why(Code.HELD, text)


def _later(job: Waiting, run_at: datetime, around: Around) -> Why:
    code = Code.RETRYING if job.state == "retrying" else Code.SCHEDULED
    text = f"it is due in {ago(run_at, around.now)}, at {clock(run_at, around.now)}"
    if code is Code.RETRYING and job.failed:
        text += f"; its last attempt failed: {job.failed}"

    also = _paused(job.queue, around)
    if also is not None:
        text += f"; until then and after: {also.text}"

    return Why(code, text)


def _paused(queue: str, around: Around) -> Why | None:
    pause = around.pauses.get(queue)
    if pause is None:
        return None

    since = clock(pause.at, around.now)
    text = f"{pause.by} paused queue {queue} at {since}: {pause.why}"

    return Why(Code.QUEUE_PAUSED, text)


def _without_worker(job: Waiting, around: Around) -> Why | None:
    """Explain that no live worker can run the job; None if one can."""
    if any(_may_run(worker, job) for worker in around.workers):
        return None

    able = [worker for worker in around.workers if worker.handles(job.kind)]
    serving = [worker for worker in around.workers if worker.serves(job.queue)]
    queues = _all_of(worker.queues for worker in able)
    kinds = _all_of(worker.kinds for worker in serving)
    if not serving and not queues:
        gone = [worker for worker in around.gone if _may_run(worker, job)]
        return _nobody(job.queue, gone, around)

    text = f"no live worker handles {job.kind} on queue {job.queue}"
    if queues:
        text += f"; workers for it serve: {_some(queues)}"
    if kinds:
        text += f"; workers of this queue handle: {_some(kinds)}"

    return Why(Code.NO_WORKER, text)


def _all_of(lists: Iterable[Sequence[str] | None]) -> list[str]:
    """Return each name of the lists once, sorted."""
    return sorted({name for names in lists for name in names or ()})


def _nobody(queue: str, gone: Sequence[Worker], around: Around) -> Why:
    """Explain that no worker serves the queue; name silent workers that would."""
    text = f"no live worker serves queue {queue}"
    served = _all_of(worker.queues for worker in around.workers)
    if served:
        text += f"; the live ones serve: {_some(served)}"

    return Why(Code.NOT_POLLED, text + _last_seen(gone, around))


def _last_seen(gone: Sequence[Worker], around: Around) -> str:
    """Say when a worker that would serve the queue was last seen, or any worker."""
    instants = [worker.seen for worker in gone if worker.seen is not None]
    if instants:
        return f"; one that would was last seen {ago(max(instants), around.now)} ago"
    if around.workers:
        return ""
    if around.seen is None:
        return ""

    last = ago(around.seen, around.now)
    return f"; the last worker of any queue was seen {last} ago"


def _not_asked(queue: str, workers: Sequence[Worker], now: datetime) -> Why | None:
    """Explain that all workers that could run the job are alive but do not claim."""
    asked = [worker.asked for worker in workers if worker.asked is not None]
    # A worker that does not report its claims may still claim.
    if len(asked) < len(workers) or not asked:
        return None

    quiet = (now - max(asked)).total_seconds()
    if quiet < QUIET_SECONDS:
        return None

    text = f"nobody has polled queue {queue} for {span(quiet)}: {_slots(workers)}"
    return Why(Code.NOT_POLLED, text)


def _due(job: Waiting, run_at: datetime, able: Sequence[Worker], now: datetime) -> Why:
    late = (now - run_at).total_seconds()
    parts = [f"it has been due for {span(max(0.0, late))}"]
    if job.ahead is not None:
        or_more = " or more" if job.ahead >= MOST_AHEAD else ""
        parts.append(f"{job.ahead}{or_more} due jobs stand before it in its lane")

    parts.append(_slots(able))
    # Jobs ahead of it explain the delay.
    if late > LATE_SECONDS and not job.ahead:
        parts.append(_TOO_LATE)

    return Why(Code.DUE, "; ".join(parts))


def _slots(workers: Sequence[Worker]) -> str:
    slots = sum(worker.slots for worker in workers)
    busy = sum(worker.busy for worker in workers)
    text = f"{counted(len(workers), 'live worker')} can run it"
    if slots:
        text += f", {busy} of {slots} slots busy"

    return text


def _may_run(worker: Worker, job: Waiting) -> bool:
    return worker.serves(job.queue) and worker.handles(job.kind)


def _matching(kind: str, kinds: Sequence[str]) -> str | None:
    """Return the kind or the longest prefix with a star that covers a job's kind."""
    if kind in kinds:
        return kind

    prefixes = (n for n in kinds if n.endswith("*") and kind.startswith(n[:-1]))
    return max(prefixes, key=len, default=None)


def _some(names: Sequence[str]) -> str:
    text = ", ".join(names[:MOST_SHOWN])
    more = len(names) - MOST_SHOWN
    return f"{text} and {more} more" if more > 0 else text


def _nth(n: int) -> str:
    """Return an ordinal, in words up to three."""
    return {1: "first", 2: "second", 3: "third"}.get(n, f"{n}th")
