"""Random histories against a dict: every statement that moves a job, from several workers, on a
real Postgres.

The model knows of each job where it must be; after every step the database is asked whether it
agrees.
"""

import os
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from redrive.enqueue import enqueue_reporting
from redrive.handlers.job import COMPLETE
from redrive.worker import store
from redrive.worker.claim.lanes import LaneBook
from redrive.worker.protocol import Report
from tests.factories import (
    Claimed,
    exchange,
    failure,
    holders,
    last_claim,
    make_campaign,
    make_worker,
    silence,
)
from tests.postgres import Database

MAX_REDRIVES = 2
KEYS = st.sampled_from(["k1", "k2", None, None, None])
ORDERS = st.sampled_from(["o1", "o2", None, None, None])


@dataclass
class Known:
    """A job as the model has it. where: waiting | held | dead | redriven | gone."""

    key: str | None
    order: str | None
    where: str = "waiting"
    worker: int | None = None
    deliveries: int = 0
    attempt: int = 0
    losses: int = 0
    redrives: int = 0
    failures: int = 0
    settled_dead: str = ""


@dataclass
class Tally:
    """What must have been counted."""

    events: dict[str, int] = field(default_factory=dict)

    def add(self, event: str, n: int = 1) -> None:
        if n:
            self.events[event] = self.events.get(event, 0) + n


class Histories(RuleBasedStateMachine):
    """Several workers, an operator, and time that passes when we say so."""

    database: Database

    def __init__(self) -> None:
        super().__init__()
        self.conn = self.database.conn
        self.conn.execute(
            "truncate redrive.jobs, redrive.claims, redrive.lanes, redrive.running_keys,"
            " redrive.dead_letters, redrive.failures, redrive.completions,"
            " redrive.deltas, redrive.tallies, redrive.workers, redrive.campaigns"
            " restart identity cascade"
        )
        self.jobs: dict[int, Known] = {}
        self.succeeded: dict[str, int] = {}
        self.claims: list[
            tuple[int, Claimed]
        ] = []  # every claim ever made, stale ones too
        self.tally = Tally()
        self.workers: list[int] = []
        self.books: dict[int, LaneBook] = {}
        self.before: set[str] = (
            set()
        )  # where an older job of a key keeps the others waiting

    @initialize(holds=st.booleans())
    def start(self, holds: bool) -> None:
        self.workers = [self._worker(n) for n in range(2)]
        self.before = {"waiting", "held", "dead"} if holds else {"waiting", "held"}
        said = store.Registration(
            "holding", "test", 1e6, ["work"], None, holds=["work"]
        )
        if holds:
            store.register(self.conn, said)
        self.campaign = make_campaign(self.conn)

    def _worker(self, n: int) -> int:
        """One that is heard of until it is lost: the clock must not decide anything here."""
        worker = make_worker(self.conn, f"worker-{n}")
        self.books[worker] = LaneBook(None)
        silence(self.conn, worker, -86_400)
        return worker

    # ------------------------------------------------------------------ producers

    @rule(key=KEYS, order=ORDERS, max_attempts=st.sampled_from([None, 1, 3]))
    def enqueue(
        self, key: str | None, order: str | None, max_attempts: int | None
    ) -> None:
        report = enqueue_reporting(
            self.conn,
            "work",
            {"n": len(self.jobs)},
            idempotency_key=key,
            ordering_key=order,
            max_attempts=max_attempts,
        )
        holder = next(
            (
                j
                for j, k in self.jobs.items()
                if k.key == key and k.where in {"waiting", "held"}
            ),
            None,
        )
        if key is not None and key in self.succeeded:
            assert (report.created, report.outcome, report.id) == (
                False,
                "succeeded",
                self.succeeded[key],
            )
        elif key is not None and holder is not None:
            assert (report.created, report.outcome, report.id) == (
                False,
                "live",
                holder,
            )
        else:
            assert report.created
            assert report.id not in self.jobs
            self.jobs[report.id] = Known(key, order)
            self.tally.add("enqueued")

    # ------------------------------------------------------------------ workers

    @rule(
        n=st.integers(0, 1),
        want=st.integers(1, 4),
        now=st.sampled_from([0.0, float("inf")]),
    )
    def claim(self, n: int, want: int, now: float) -> None:
        """Claim as a worker does. At the end of all time, a sweep is due."""
        worker = self.workers[n]
        book = self.books[worker]
        book.replace(store.lanes(self.conn, None)[0], 0.0, 0.0)
        request = book.request(worker, want, now, after=last_claim(self.conn))
        if request is None:
            return
        answer = exchange(self.conn, claim=request)
        book.learn(request, answer.lanes, 0.001)
        rows = [Claimed(*row) for row in answer.rows()]
        assert len(rows) <= want
        for row in rows:
            known = self.jobs[row.id]
            assert known.where == "waiting", "claimed while somebody has it"
            assert row.deliveries == known.deliveries + 1, (
                "deliveries must rise by one, for ever"
            )
            assert row.attempt == known.attempt + 1
            assert not [
                j
                for j, k in self.jobs.items()
                if j < row.id
                and k.order == known.order is not None
                and k.where in self.before
            ], "overtook a job of its ordering key"
            known.where, known.worker = "held", worker
            known.deliveries, known.attempt = row.deliveries, row.attempt
            self.claims.append((worker, row))
        self.tally.add("claimed", len(rows))

    def _some_claim(self, data: Any) -> tuple[int, Claimed]:
        """A recent claim; half of the time one that its own worker has superseded by another of the
        same job.
        """
        superseded = [
            (worker, row)
            for worker, row in self.claims
            if self.jobs[row.id].worker == worker
            and self.jobs[row.id].deliveries > row.deliveries
        ]
        pool = (
            superseded if superseded and data.draw(st.booleans()) else self.claims[-12:]
        )
        return data.draw(st.sampled_from(pool))

    def _is_current(self, worker: int, row: Claimed) -> bool:
        known = self.jobs[row.id]
        return (
            known.where == "held"
            and known.worker == worker
            and known.deliveries == row.deliveries
        )

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), own=st.booleans(), impostor=st.booleans())
    def complete(self, data: Any, own: bool, impostor: bool) -> None:
        worker, row = self._some_claim(data)
        if impostor:
            worker = data.draw(st.sampled_from(self.workers))
        is_current = self._is_current(worker, row)
        if own:
            with self.conn.transaction():
                found = self.conn.execute(
                    COMPLETE, (worker, row.id, row.deliveries)
                ).fetchone()
            settled = bool(found and found[0])
        else:
            answer = exchange(self.conn, [(row.id, row.deliveries, row.claim, worker)])
            settled = answer.completed is None
        assert settled == is_current, "the fence"
        if is_current:
            self._gone(row.id)
            known = self.jobs[row.id]
            if known.key is not None:
                self.succeeded.setdefault(known.key, row.id)
            self.tally.add("completed")
            self._ended(known)

    def _ended(self, known: Known) -> None:
        """Count the outcome of a redriven job. Each redrive left one dead letter behind, which is
        resolved now.
        """
        if known.redrives:
            self.tally.add("outcome")
            self.tally.add("resolved", known.redrives)

    def _gone(self, job: int) -> None:
        known = self.jobs[job]
        known.where, known.worker = "gone", None

    @precondition(lambda self: self.claims)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["retry", "release", "dead", "cancel"]),
        refund=st.booleans(),
        loss=st.integers(0, 1),
        delay=st.sampled_from([0.0, 0.0, 3600.0]),
    )
    def settle(
        self, data: Any, outcome: str, refund: bool, loss: int, delay: float
    ) -> None:
        worker, row = self._some_claim(data)
        is_current = self._is_current(worker, row)
        report = Report(
            row.id,
            row.deliveries,
            outcome,
            delay,
            None,
            refund,
            loss,
            failure() if outcome in {"retry", "dead"} else None,
            "because",
        )
        settled = exchange(self.conn, reports=[(report, row.claim, worker)]).settled
        assert settled == ({row.id} if is_current else set()), "the fence"
        if not is_current:
            return
        known = self.jobs[row.id]
        known.worker = None
        if outcome in {"retry", "release"}:
            known.where = "waiting"
            known.attempt -= int(refund)
            # whoever comes back to say how it ended has not killed its process
            known.losses = 0 if outcome == "retry" and not loss else known.losses + loss
            known.failures += outcome == "retry"
            self.tally.add("retried" if outcome == "retry" else "released")
        elif outcome == "dead":
            known.where = "dead"
            known.failures += 1
            known.settled_dead = "because"
            self.tally.add("dead")
            if known.redrives:
                self.tally.add("outcome")
        else:
            self._gone(row.id)
            self.tally.add("cancelled")
            self._ended(known)

    @rule(n=st.integers(0, 1))
    def retire(self, n: int) -> None:
        retired = store.retire(self.conn, self.workers[n])
        mine = [
            k
            for k in self.jobs.values()
            if k.where == "held" and k.worker == self.workers[n]
        ]
        assert retired == (len(mine), True)
        for known in mine:
            known.where, known.worker, known.attempt = (
                "waiting",
                None,
                max(0, known.attempt - 1),
            )
        self.tally.add("released", len(mine))
        self.workers[n] = self._worker(n)

    @rule(n=st.integers(0, 1), alone=st.booleans())
    def lose(self, n: int, alone: bool) -> None:
        """A worker falls silent for longer than its ttl, and somebody rescues."""
        worker = self.workers[n]
        mine = {
            j: k
            for j, k in self.jobs.items()
            if k.where == "held" and k.worker == worker
        }
        spent = {min(mine)} if mine and alone else set()
        for job in spent:
            store.run_alone(self.conn, worker, job)
        silence(self.conn, worker)
        lost, rescued, buried = store.rescue(self.conn, 0.2)
        assert lost == 1
        assert (rescued, buried) == (len(mine) - len(spent), len(spent))
        for job, known in mine.items():
            known.worker, known.losses, known.failures = (
                None,
                known.losses + 1,
                known.failures + 1,
            )
            known.where = "dead" if job in spent else "waiting"
            known.attempt -= job not in spent
            known.settled_dead = "killed_worker" if job in spent else ""
            if job in spent and known.redrives:
                self.tally.add("outcome")
        self.tally.add("dead", buried)
        self.tally.add("rescued", rescued)
        assert store.beat(self.conn, {worker: 0}).alive == set(), (
            "it must learn that it was declared lost"
        )
        self.workers[n] = self._worker(n)

    @rule()
    def let_time_pass(self) -> None:
        """What was put off is due; what waits for its key is looked at."""
        self.conn.execute(
            "update redrive.jobs set run_at = clock_timestamp()"
            " where run_at < 'infinity' and id <> all (%s)",
            (list(holders(self.conn)),),
        )
        store.unpark(self.conn)

    @rule()
    def fold(self) -> None:
        store.fold(self.conn)

    # ------------------------------------------------------------------ operators

    @precondition(
        lambda self: any(k.where in {"dead", "gone"} for k in self.jobs.values())
    )
    @rule(data=st.data())
    def redrive(self, data: Any) -> None:
        ids = sorted(self.jobs)
        chosen = data.draw(
            st.lists(st.sampled_from(ids), min_size=1, max_size=4, unique=True)
        )
        rows = self.conn.execute(
            "select id, blocked from redrive.redrive_v1(%s::bigint[], %s, null, now(), %s, true)",
            (chosen, self.campaign, MAX_REDRIVES),
        ).fetchall()
        assert sorted(job for job, _ in rows) == sorted(chosen)
        for job, blocked in sorted(rows):
            known = self.jobs[job]
            live_key = known.key is not None and any(
                k.key == known.key and k.where in {"waiting", "held"}
                for j, k in self.jobs.items()
                if j != job
            )
            if known.where != "dead":
                assert blocked == "not_open"
            elif known.key in self.succeeded:
                assert blocked == "succeeded", "a redrive must not repeat a success"
            elif known.redrives >= MAX_REDRIVES:
                assert blocked == "max_redrives"
            elif live_key:
                assert blocked == "conflict"
            else:
                assert blocked is None
                known.where, known.attempt, known.losses, known.worker = (
                    "waiting",
                    0,
                    0,
                    None,
                )
                known.redrives += 1
                self.tally.add("redriven")
                continue
            if known.where == "dead":
                self.tally.add("outcome")

    @precondition(lambda self: any(k.where == "dead" for k in self.jobs.values()))
    @rule(data=st.data())
    def purge(self, data: Any) -> None:
        job = data.draw(
            st.sampled_from(
                sorted(j for j, k in self.jobs.items() if k.where == "dead")
            )
        )
        known = self.jobs[job]
        purged = self.database.value(
            "select redrive.purge_v1(null, array[%s]::bigint[], array[%s]::int[], array['open'])",
            job,
            known.redrives,
        )
        assert purged == 1
        self._gone(job)
        self.tally.add("purged")

    # ------------------------------------------------------------------ what always holds

    @invariant()
    def every_job_is_where_it_must_be_and_nowhere_else(self) -> None:
        if not self.workers:
            return
        live = {
            row[0]: row[1:]
            for row in self.database.rows(
                "select j.id, k.worker, j.deliveries + (k.id is not null)::int,"
                " j.attempt + (k.id is not null)::int, j.losses, j.redrives"
                " from redrive.jobs j left join redrive.claims k on j.id = any (k.ids)"
            )
        }
        dead = {
            row[0]: row[1:]
            for row in self.database.rows(
                "select id, redrives, deliveries, reason from redrive.dead_letters"
                " where state = 'open'"
            )
        }

        assert not live.keys() & dead.keys(), "in two places"
        assert live.keys() == {
            j for j, k in self.jobs.items() if k.where in {"waiting", "held"}
        }, "lost or revived"
        assert dead.keys() == {j for j, k in self.jobs.items() if k.where == "dead"}
        for job, (worker, deliveries, attempt, losses, redrives) in live.items():
            known = self.jobs[job]
            assert (worker, deliveries, attempt, losses, redrives) == (
                known.worker,
                known.deliveries,
                known.attempt,
                known.losses,
                known.redrives,
            )
        for job, (redrives, deliveries, reason) in dead.items():
            known = self.jobs[job]
            assert (redrives, deliveries, reason) == (
                known.redrives,
                known.deliveries,
                known.settled_dead,
            )

    @invariant()
    def a_dead_letter_has_all_its_failures(self) -> None:
        counts = dict(
            self.database.rows(
                "select job, count(*) from redrive.failures group by job"
            )
        )
        for job, known in self.jobs.items():
            if known.where in {"dead", "waiting", "held"}:
                assert counts.get(job, 0) == known.failures, f"job {job}"

    @invariant()
    def what_may_run_is_not_parked(self) -> None:
        store.unpark(self.conn)
        parked = set(
            self.database.column(
                "select id from redrive.jobs where run_at = 'infinity'"
            )
        )
        for order in ("o1", "o2"):
            mine = [
                j
                for j, k in self.jobs.items()
                if k.order == order and k.where in self.before
            ]
            head = min(mine, default=0)
            if all(self.jobs[j].where != "held" for j in mine):
                assert head not in parked

    @invariant()
    def counters_conserve(self) -> None:
        rows = self.database.rows(
            "select event, sum(n)::bigint from redrive.totals"
            " where event <> 'new_group'"  # which the first fold of a group counts
            " group by event having sum(n) <> 0"
        )
        counted = dict(rows)
        assert counted == self.tally.events
        n = counted.get
        live = self.database.value("select count(*) from redrive.jobs")
        held = len(holders(self.conn))
        open_dead = self.database.value(
            "select count(*) from redrive.dead_letters where state = 'open'"
        )
        assert live == n("enqueued", 0) + n("redriven", 0) - n("completed", 0) - n(
            "cancelled", 0
        ) - n("dead", 0)
        assert held == n("claimed", 0) - sum(
            n(e, 0)
            for e in (
                "completed",
                "cancelled",
                "retried",
                "released",
                "rescued",
                "dead",
            )
        )
        assert open_dead == n("dead", 0) - n("redriven", 0) - n("purged", 0)


IS_CI = os.environ.get("CI") == "true"
EXAMPLES = int(os.environ.get("REDRIVE_TEST_EXAMPLES", "120" if IS_CI else "20"))


@pytest.mark.slow
def test_no_history_loses_a_job_or_breaks_the_fence(database: Database):
    Histories.database = database
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
        ),
    )
