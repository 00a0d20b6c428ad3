"""Call the functions of a real database in a random order, also as no worker of ours would.

A walk enqueues jobs that share keys, claims them, and settles each of them by whom it belongs to,
by whom it belonged to before, twice, and late. Workers fall silent and come back, jobs are buried,
redriven, dismissed, cancelled and purged, and keys are forgotten at once. Each call is a transaction
of its own. The model judges the record afterwards, so nothing is compared here.
"""

import contextlib
import json
import random
from dataclasses import dataclass, field
from typing import Any, LiteralString, NamedTuple

import psycopg

KINDS = ("walk.a", "walk.b")
NOBODY = 7
"""An id that no worker has."""


class Held(NamedTuple):
    """A job as a worker got it."""

    worker: int
    claim: int
    id: int
    deliveries: int


@dataclass
class Walk:
    """One random walk. `conn` commits each statement."""

    conn: psycopg.Connection[Any]
    dice: random.Random
    workers: list[int] = field(default_factory=list[int])
    held: list[Held] = field(default_factory=list[Held])

    def run(self, steps: int) -> None:
        """Take so many steps; a call that the database refuses is one, too."""
        acts = (
            [self.enqueue] * 5
            + [self.claim] * 5
            + [self.complete] * 4
            + [self.settle] * 5
        )
        acts += [
            self.register,
            self.retire,
            self.silence,
            self.silence,
            self.rescue,
            self.rescue,
        ]
        acts += [self.complete_in_transaction, self.redrive, self.redrive, self.redrive]
        acts += [self.dismiss, self.reopen, self.cancel, self.purge]
        acts += [
            self.forget,
            self.forget,
            self.forgive,
            self.wake,
            self.twice,
            self.come_back,
        ]
        self.register()
        for _ in range(steps):
            with contextlib.suppress(psycopg.Error):
                self.dice.choice(acts)()

    def _rows(self, query: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.conn.execute(query, values or None)
        return cursor.fetchall() if cursor.description else []

    def _ids(self, query: LiteralString) -> list[int]:
        """Return some of the ids that a query finds."""
        found = [one for (one,) in self._rows(query)]
        return self.dice.sample(found, min(len(found), self.dice.randint(1, 2)))

    def enqueue(self) -> None:
        dice = self.dice
        self._rows(
            "select redrive.enqueue(%s, '{}', run_at => case when %s then null else"
            " now() + '1 hour' end, idempotency_key => %s, ordering_key => %s)",
            dice.choice(KINDS), dice.random() < 0.95,
            f"key {dice.randint(1, 8)}" if dice.random() < 0.6 else None,
            f"order {dice.randint(1, 4)}" if dice.random() < 0.4 else None,
        )  # fmt: skip

    def register(self) -> None:
        holds = ["walk.b"] if self.dice.random() < 0.7 else None
        ((worker,),) = self._rows(
            "select redrive.register_v1('w', '', '1 s', null, null, null, %s)", holds
        )
        self.workers.append(worker)

    def claim(self) -> None:
        worker = self.dice.choice(self.workers[-4:])
        self._rows(
            "select * from redrive.claim_v1(%s, '{default}', '{0}', '{0}', '{1970-01-01 UTC}', '{0}',"
            " '{0}', true, %s)", worker, self.dice.randint(1, 3),
        )  # fmt: skip
        if self.dice.random() < 0.15:
            return  # the answer is lost
        self.held += [
            Held(worker, *row)
            for row in self._rows(
                "select claim, id, deliveries from redrive.claimed_v1(%s, 0)", worker
            )
        ]

    def _some_held(self) -> list[Held]:
        """Return jobs to settle: mostly as they are held, and sometimes as somebody else's."""
        chosen = self.dice.sample(self.held[-12:], min(len(self.held[-12:]), 2))
        if self.dice.random() < 0.25:
            chosen = [
                one._replace(worker=self.dice.choice([*self.workers[-3:], NOBODY]))
                for one in chosen
            ]
        return sorted(set(chosen), key=lambda one: (one.id, one.deliveries))

    def _ended(self, chosen: list[Held]) -> list[int]:
        """Return the claims that a worker would find empty after this: none of its jobs is left."""
        over: list[int] = []
        for claim in {one.claim for one in chosen}:
            left = self._rows(
                "select j.id from redrive.claims k, unnest(k.ids) i(id) join redrive.jobs j using (id)"
                " where k.id = %s", claim,
            )  # fmt: skip
            if {j for (j,) in left} <= {one.id for one in chosen if one.claim == claim}:
                over.append(claim)
        return over

    def complete(self) -> None:
        chosen = self._some_held()
        if not chosen:
            return
        workers, claims, ids, deliveries = (
            list(of) for of in zip(*chosen, strict=True)
        )
        honest = all(one in self.held for one in chosen)
        self._rows(
            "select redrive.complete_v1(%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::bigint[])",
            workers, claims, ids, deliveries, self._ended(chosen) if honest and self._are_ours(chosen) else [],
        )  # fmt: skip

    def complete_in_transaction(self) -> None:
        for one in self._some_held()[:1]:
            self._rows(
                "select redrive.complete_in_transaction_v1(%s, %s, %s)",
                one.worker, one.id, one.deliveries,
            )  # fmt: skip

    def _are_ours(self, chosen: list[Held]) -> bool:
        """Return whether the database would say so: only then does a worker end a claim."""
        return all(
            self._rows(
                "select from redrive.claims k join redrive.jobs j on j.id = %s and j.id = any (k.ids)"
                " where k.id = %s and k.worker = %s and j.deliveries = %s - 1",
                one.id, one.claim, one.worker, one.deliveries,
            )
            for one in chosen
        )  # fmt: skip

    def settle(self) -> None:
        chosen = self._some_held()
        if not chosen:
            return
        n = len(chosen)
        workers, claims, ids, deliveries = (
            list(of) for of in zip(*chosen, strict=True)
        )
        outcomes = [
            self.dice.choice(["retry", "retry", "release", "dead", "dead", "cancel"])
            for _ in ids
        ]
        failure = json.dumps({"error_class": "E", "message": "m", "category": "bug",
                              "fingerprint": f"f{self.dice.randint(1, 3)}"})  # fmt: skip
        self._rows(
            "select redrive.settle_v1(%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::text[],"
            " array_fill(null::timestamptz, array[%s]), array_fill(0::float8, array[%s]),"
            " array_fill(false, array[%s]), array_fill(%s, array[%s]), %s::jsonb[], %s::text[], '{}')",
            workers, claims, ids, deliveries, outcomes, n, n, n, self.dice.randint(0, 1), n,
            [failure if o in {"retry", "dead"} else None for o in outcomes],
            ["attempts_exhausted" if o == "dead" else None for o in outcomes],
        )  # fmt: skip

    def twice(self) -> None:
        """Settle what was settled: the answer to the first time was lost."""
        self.held += self.held[-2:]
        self.complete()
        self.settle()

    def retire(self) -> None:
        worker = self.dice.choice(self.workers[-5:])
        known = [
            one.id
            for one in self.held
            if one.worker == worker and self.dice.random() < 0.5
        ]
        self._rows("select redrive.retire_v1(%s, %s::bigint[])", worker, known)

    def silence(self) -> None:
        self._rows(
            "update redrive.workers set heard = heard - interval '1 hour' where id = %s",
            self.dice.choice(self.workers[-5:]),
        )
        self.register()

    def come_back(self) -> None:
        self._rows(
            "select redrive.beat_v1(%s::int[], '{0}', array[null::jsonb])",
            self.workers[-1:],
        )

    def rescue(self) -> None:
        self._rows("select redrive.rescue_v1('30 s')")

    def forgive(self) -> None:
        chosen = self.held[-3:]
        self._rows("select redrive.forgive_v1(%s::bigint[], %s::int[])",
                   [one.id for one in chosen], [one.deliveries for one in chosen])  # fmt: skip

    def redrive(self) -> None:
        ids = self._ids(
            "select id from redrive.dead_letters where state in ('open', 'redriven')"
        )
        self._rows(
            "select redrive.redrive_v1(%s::bigint[], null, null, null, 1000, true)", ids
        )

    def dismiss(self) -> None:
        ids = self._ids("select id from redrive.dead_letters where state = 'open'")
        self._rows("select redrive.dismiss_v1(%s::bigint[], 'walk', 'a test')", ids)

    def reopen(self) -> None:
        ids = self._ids("select id from redrive.dead_letters where state = 'dismissed'")
        self._rows("select redrive.reopen_v1(%s::bigint[], 'walk', 'a test')", ids)

    def cancel(self) -> None:
        ids = self._ids("select id from redrive.jobs")
        self._rows("select redrive.cancel_v1(%s::bigint[], 'walk', 'a test')", ids)

    def purge(self) -> None:
        chosen = self._rows(
            "select id, redrives from redrive.dead_letters"
            " where state <> 'open' or random() < 0.2 order by random() limit 2"
        )
        ids, redrives = zip(*chosen, strict=True) if chosen else ((), ())
        ((run,),) = self._rows(
            "select redrive.begin_run_v1('purge', 'walk', 'a test', 2, '{}')"
        )
        self._rows(
            "select redrive.purge_v1(%s, %s::bigint[], %s::int[], '{open,resolved,dismissed}')",
            run, list(ids), list(redrives),
        )  # fmt: skip

    def forget(self) -> None:
        self._rows("select redrive.forget_completions_v1('0 s', 3)")

    def wake(self) -> None:
        self._rows("select redrive.unpark_v1(100)")
