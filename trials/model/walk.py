"""Call the functions that move jobs in a random order, so that the model can judge what they did.

A fault run shows what workers do. A walk also does what no worker would do: it settles with an old
delivery, or in the name of another worker, and it claims for a lost one. The same seed gives the
same calls.
"""

import contextlib
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, LiteralString, TypeAlias

import psycopg

from redrive import enqueue, enqueue_many
from redrive.handlers.job import COMPLETE
from redrive.rules.payloads.job_fields import JobFields
from redrive.worker import store
from redrive.worker.round_trip import START, ClaimRequest, Lane, Place
from tests.factories import (
    Claimed,
    exchange,
    failure,
    lanes_of,
    last_claim,
    redrive,
    silence,
)
from tests.postgres import Connection, Database
from trials.model import recorder

COMPLETE_BATCH: LiteralString = """
    select redrive.complete_v1(%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::bigint[])"""
SETTLE_BATCH: LiteralString = """
    select redrive.settle_v1(%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::text[],
        %s::timestamptz[], %s::float8[], %s::bool[], %s::int[], %s::jsonb[], %s::text[],
        %s::bigint[])"""
KINDS = ("work", "work", "held")
"""Dead letters of `held` hold their ordering keys."""
STATES = ("open", "dismissed", "redriven", "resolved")
FOREVER = 86_400.0
RACE = "race"
"""The queue of jobs for which two claims race."""


Call: TypeAlias = Callable[["Walk", Connection], None]


class Walk:
    """Random calls of several workers, producers and operators.

    If it overlaps, a second session keeps a transaction open around some of the calls. A third
    one waits for locks until that transaction has ended.
    """

    def __init__(self, database: Database, seed: int, *, overlaps: bool) -> None:
        self._dice = random.Random(seed)
        self._conn = database.connect(lock_timeout="100ms", statement_timeout="20s")
        self._patient = database.connect(lock_timeout="10s", statement_timeout="20s")
        self._thread = ThreadPoolExecutor(1)
        self._other = (
            database.connect(lock_timeout="100ms", statement_timeout="20s")
            if overlaps
            else None
        )
        self._n = 0
        self._news: list[Callable[[], None]] = []
        """What the workers will know if the call that is made commits."""
        self._workers = [self._register(self._conn) for _ in range(3)]
        self._lost: list[int] = []
        self._places: dict[tuple[int, Lane], Place] = {}
        self._claims: list[tuple[int, Claimed]] = []
        self._unsettled: dict[int, set[int]] = {}
        """The jobs of each claim that its worker has not settled."""

    def run(self, steps: int) -> None:
        """Make so many calls, then let every worker be lost, and rescue what they held."""
        for _ in range(steps):
            chance = 1.0 if self._other is None else self._dice.random()
            if self._other is not None and chance < 0.03:
                self._race(self._other)
            elif self._other is not None and chance < 0.3:
                self._overlap(self._other)
            else:
                self._call(self._conn)
        for worker in self._workers:
            silence(self._conn, worker)
        for _ in range(4):
            store.rescue(self._conn, 1.0)
            store.unpark(self._conn)

    def _overlap(self, other: Connection) -> None:
        """Make a call, and some in another session before the first one commits or rolls back.

        A worker often claims while an operator cancels, because only then are jobs held that it
        would take.
        """
        is_cancelled = self._dice.random() < 0.15
        call, then = (Walk.cancel, Walk.claim) if is_cancelled else (self._pick(), None)
        news: list[Callable[[], None]] = []
        is_kept = self._dice.random() < 0.8
        with contextlib.suppress(psycopg.Error):
            with other.transaction(force_rollback=not is_kept):
                call(self, other)
                news, self._news = self._news, []
                for _ in range(self._dice.randint(1, 3)):
                    self._call(self._conn, then)
                again = call if self._dice.random() < 0.5 else None
                waiting = self._thread.submit(self._call, self._patient, again)
                wait([waiting], timeout=0.03)  # it ends, or it waits for the first one
            waiting.result()
            self._learn(news if is_kept else [])
        self._news = []

    def _race(self, other: Connection) -> None:
        """Let two workers claim a job of one ordering key at once, each from a lane of its own.

        The older job is committed after the younger one has been claimed.
        """
        self._n += 1
        one, two = self._dice.sample(self._workers, 2)
        job: JobFields = {
            "kind": "work",
            "payload": {},
            "queue": RACE,
            "ordering_key": f"race{self._n}",
        }
        with contextlib.suppress(psycopg.Error):
            with self._conn.transaction():
                with other.transaction():
                    enqueue(other, **job, priority=0)
                    enqueue(self._patient, **job, priority=1)
                    self._claim_from(self._conn, one, _lanes(self._conn, RACE, 1))
                news, self._news = self._news, []
                waiting = self._thread.submit(
                    self._call,
                    self._patient,
                    lambda walk, conn: walk._claim_from(
                        conn, two, _lanes(conn, RACE, 0)
                    ),
                )
                wait([waiting], timeout=0.03)  # it waits for the first claim
            waiting.result()
            self._learn(news)
        self._news = []

    def _call(self, conn: Connection, call: Call | None = None) -> None:
        with contextlib.suppress(psycopg.Error):
            with conn.transaction():
                (call or self._pick())(self, conn)
            self._learn(self._news)
        self._news = []

    def _learn(self, news: list[Callable[[], None]]) -> None:
        for learn in news:
            learn()

    def _pick(self) -> Call:
        return self._dice.choices(list(CALLS), list(CALLS.values()))[0]

    # ------------------------------------------------------------------ producers

    def _job(self) -> JobFields:
        self._n += 1
        dice, of = self._dice, self._n // 30
        return {
            "kind": dice.choice(KINDS),
            "payload": {"n": self._n},
            "priority": dice.choice((0, 0, 1)),
            "idempotency_key": dice.choice((f"k{of}-1", f"k{of}-2", None, None)),
            "ordering_key": dice.choice((f"o{of}-1", f"o{of}-2", None)),
        }

    def add(self, conn: Connection) -> None:
        """Enqueue a job, or some."""
        if self._dice.random() < 0.5:
            enqueue(conn, **self._job())
        else:
            enqueue_many(conn, [self._job() for _ in range(self._dice.randint(2, 4))])

    # ------------------------------------------------------------------ workers

    def _register(self, conn: Connection) -> int:
        said = store.Registration("walker", "test", 30.0, ["*"], None, holds=["held"])
        worker = store.register(conn, said)
        silence(conn, worker, -FOREVER)
        return worker

    def claim(self, conn: Connection) -> None:
        """Claim for a worker, seldom for a lost one. Half of the claims go on at the last place."""
        is_late = bool(self._lost) and self._dice.random() < 0.15
        worker = self._dice.choice(self._lost if is_late else self._workers)
        self._claim_from(conn, worker, lanes_of(conn))

    def _claim_from(self, conn: Connection, worker: int, lanes: list[Lane]) -> None:
        places = [self._places.get((worker, lane), START) for lane in lanes]
        request = ClaimRequest(
            worker,
            lanes,
            places,
            self._dice.randint(1, 4),
            from_start=START in places or self._dice.random() < 0.5,
            after=last_claim(conn),
        )
        answer = exchange(conn, claim=request)
        rows = [Claimed(*row) for row in answer.rows()]

        def learn() -> None:
            for at in answer.lanes:
                if at.lane_no and at.upto:
                    place = Place(at.upto, at.upto_id or 0, at.as_of or 0)
                    self._places[worker, lanes[at.lane_no - 1]] = place
            for row in rows:
                self._claims.append((worker, row))
                self._unsettled.setdefault(row.claim, set()).add(row.id)

        self._news.append(learn)

    def _some(self) -> list[tuple[int, Claimed]]:
        """Some claimed jobs, one row each: often what was claimed last, sometimes long ago."""
        recent = self._claims[-8:] if self._dice.random() < 0.7 else self._claims
        chosen = self._dice.sample(recent, min(len(recent), self._dice.randint(1, 3)))
        if self._dice.random() < 0.15:
            chosen = [(self._dice.choice(self._workers), row) for _, row in chosen]
        return sorted(
            {row.id: (worker, row) for worker, row in chosen}.values(),
            key=lambda one: one[1].id,
        )

    def _ended(self, settled: list[tuple[int, Claimed]]) -> list[int]:
        """The claims that these settlements leave empty; seldom one of another worker."""
        own = [row for worker, row in settled if (worker, row) in self._claims]
        self._news.append(lambda: self._forget(own))
        done = {(row.claim, row.id) for row in own}
        ended = {
            row.claim
            for row in own
            if all((row.claim, j) in done for j in self._unsettled[row.claim])
        }
        ours = {worker for worker, _ in settled}
        others = [row.claim for worker, row in self._claims[-8:] if worker not in ours]
        if others and self._dice.random() < 0.15:
            ended.add(self._dice.choice(others))
        return sorted(ended)

    def _forget(self, settled: list[Claimed]) -> None:
        for row in settled:
            self._unsettled[row.claim].discard(row.id)

    def complete(self, conn: Connection) -> None:
        """Report successes."""
        chosen = self._some()
        if chosen:
            conn.execute(COMPLETE_BATCH, (*_columns(chosen), self._ended(chosen)))

    def complete_in_transaction(self, conn: Connection) -> None:
        """Complete as a handler does, in a transaction of its own."""
        for worker, row in self._some()[:1]:
            conn.execute(COMPLETE, (worker, row.id, row.deliveries))

    def settle(self, conn: Connection) -> None:
        """Report other ends."""
        chosen = self._some()
        if not chosen:
            return
        outcomes = [
            self._dice.choice(("retry", "release", "dead", "dead", "cancel"))
            for _ in chosen
        ]
        n = len(chosen)
        parameters = (
            *_columns(chosen),
            outcomes,
            [None] * n,
            [self._dice.choice((0.0, 0.0, 3600.0)) for _ in chosen],
            [outcome == "release" for outcome in outcomes],
            [0] * n,
            [
                failure() if outcome in {"retry", "dead"} else None
                for outcome in outcomes
            ],
            ["because"] * n,
            self._ended(chosen),
        )
        conn.execute(SETTLE_BATCH, parameters)

    def retire(self, conn: Connection) -> None:
        """Let a worker give back what it does not know of."""
        worker = self._dice.choice(self._workers)
        mine = sorted({row.id for of, row in self._claims if of == worker})
        known = [job for job in mine if self._dice.random() < 0.5]
        if store.retire(conn, worker, known).is_over:
            self._replace(conn, worker)

    def _replace(self, conn: Connection, worker: int) -> None:
        new = self._register(conn)

        def learn() -> None:
            self._workers = [new if one == worker else one for one in self._workers]
            self._lost = [*self._lost[-3:], worker]

        self._news.append(learn)

    def lose(self, conn: Connection) -> None:
        """Let a worker fall silent, sometimes while a job runs alone in it."""
        worker = self._dice.choice(self._workers)
        mine = [row.id for of, row in self._claims[-12:] if of == worker]
        if mine and self._dice.random() < 0.5:
            store.run_alone(conn, worker, self._dice.choice(mine))
        silence(conn, worker)
        self._replace(conn, worker)

    def mark_lost(self, conn: Connection) -> None:
        store.mark_lost(conn, 1.0)

    def rescue(self, conn: Connection) -> None:
        store.rescue(conn, 1.0)

    def forgive(self, conn: Connection) -> None:
        """Let workers come back that were declared lost."""
        held = [(row.id, row.deliveries) for _, row in self._some()]
        store.forgive(conn, held)

    # ------------------------------------------------------------------ operators and chores

    def _ids(
        self, conn: Connection, query: LiteralString, *parameters: Any
    ) -> list[Any]:
        rows = conn.execute(query, parameters or None).fetchall()
        return self._dice.sample(rows, min(len(rows), self._dice.randint(1, 3)))

    def _letters(self, conn: Connection, *states: str) -> list[tuple[int, int]]:
        """Some dead letters. One of four times their states do not matter."""
        asked = STATES if self._dice.random() < 0.25 else states
        return self._ids(
            conn,
            "select id, redrives from redrive.dead_letters where state = any (%s) order by 1, 2",
            list(asked),
        )

    def redrive(self, conn: Connection) -> None:
        ids = sorted({j for j, _ in self._letters(conn, "open")})
        if ids:
            redrive(conn, ids, max_redrives=4)

    def dismiss(self, conn: Connection) -> None:
        ids = sorted({j for j, _ in self._letters(conn, "open")})
        conn.execute("select redrive.dismiss_v1(%s, 'ada', 'known')", (ids,))

    def reopen(self, conn: Connection) -> None:
        ids = sorted({j for j, _ in self._letters(conn, "dismissed")})
        conn.execute("select redrive.reopen_v1(%s, 'ada', 'not known')", (ids,))

    def purge(self, conn: Connection) -> None:
        """Delete dead letters that are over, seldom open ones."""
        states = ["open"] if self._dice.random() < 0.2 else ["dismissed", "resolved"]
        found = self._letters(conn, *states)
        if found:
            ids, generations = map(list, zip(*found, strict=True))
            conn.execute(
                "select redrive.purge_v1(null, %s, %s, %s)", (ids, generations, states)
            )

    def cancel(self, conn: Connection) -> None:
        live = self._ids(conn, "select id from redrive.jobs order by id")
        ids = [job for (job,) in live]
        conn.execute("select redrive.cancel_v1(%s, 'ada', 'not needed')", (ids,))
        store.end_cancellations(conn)

    def forget(self, conn: Connection) -> None:
        conn.execute("select redrive.forget_completions_v1('0 s', 100)")

    def let_time_pass(self, conn: Connection) -> None:
        """Run what waits for its time, and wake what waits for its key."""
        live = self._ids(conn, "select id from redrive.jobs order by id")
        ids = [job for (job,) in live]
        conn.execute("select redrive.run_now_v1(%s, 'ada', 'sooner')", (ids,))
        store.unpark(conn)


CALLS: dict[Call, int] = {
    Walk.add: 8,
    Walk.claim: 9,
    Walk.complete: 5,
    Walk.complete_in_transaction: 3,
    Walk.settle: 7,
    Walk.retire: 2,
    Walk.lose: 2,
    Walk.mark_lost: 1,
    Walk.rescue: 3,
    Walk.forgive: 1,
    Walk.redrive: 4,
    Walk.dismiss: 1,
    Walk.reopen: 1,
    Walk.purge: 1,
    Walk.cancel: 2,
    Walk.forget: 2,
    Walk.let_time_pass: 3,
}
"""How often each call is made, beside the others."""


def _lanes(conn: Connection, queue: str, priority: int) -> list[Lane]:
    """Return the lanes of a queue that hold jobs of this priority."""
    return [
        lane
        for lane in lanes_of(conn)
        if (lane.queue, lane.priority) == (queue, priority)
    ]


def _columns(settled: list[tuple[int, Claimed]]) -> tuple[list[int], ...]:
    """Return the workers, claims, ids and deliveries of a batch."""
    return (
        [worker for worker, _ in settled],
        [row.claim for _, row in settled],
        [row.id for _, row in settled],
        [row.deliveries for _, row in settled],
    )


def walk(
    database: Database, seed: int, steps: int, *, overlaps: bool
) -> list[dict[str, Any]]:
    """Return the record of a walk through a new database."""
    recorder.install(database.conn)
    Walk(database, seed, overlaps=overlaps).run(steps)
    return list(recorder.read(database.conn))
