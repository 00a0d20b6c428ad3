"""Settlements that the database does not know of yet.

Each stays here until the database has answered for it. It is taken for a try, and put
back if the try fails.
"""

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter

import msgspec

from redrive.rules.attempts.failure import made_up
from redrive.rules.attempts.settlement import Outcome
from redrive.rules.model import Category
from redrive.worker.held import Claim, ClaimedJob
from redrive.worker.protocol import Report, Returned
from redrive.worker.round_trip import Settlements
from redrive.worker.telemetry import Telemetry

FULL_BATCH = 500
"""This many settlements go at once; fewer may wait for others."""

UNSTORABLE_SECONDS = 60.0
"""Delay of a job if the database refuses its settlement in every form."""

_claim_of = attrgetter("claim")


@dataclass(frozen=True, slots=True)
class SettlementBatch:
    """Settlements sent together: completions, and reports of all other ends."""

    completions: list[ClaimedJob]
    reports: list[tuple[Report, ClaimedJob]]
    has_results: bool = False

    def __len__(self) -> int:
        return len(self.completions) + len(self.reports)

    def columns(self, claims: Counter[Claim], identity: int | None) -> Settlements:
        """Return the settlements as the database takes them.

        `claims`: as below. `identity`: the current one. Its settlements come last, and
        only its empty claims end. The claims of others end when these retire. If the
        database was restored, the ids of their jobs and the numbers of their claims may
        by now belong to the current identity.
        """
        completions = [
            (held.id, held.deliveries, held.claim.id, held.batch.worker)
            for held in self.completions
        ]
        reports = [
            (report, held.claim.id, held.worker) for report, held in self.reports
        ]

        # In most batches, all claims are of the current identity: nothing to sort.
        if any(claim.worker != identity for claim in claims):
            completions.sort(key=lambda completion: completion[3] == identity)
            reports.sort(key=lambda report: report[2] == identity)

        # A claim becomes empty if this batch has all jobs that are left of it.
        ended = [
            claim.id
            for claim, jobs in claims.items()
            if jobs == claim.left and claim.worker == identity
        ]

        return Settlements(
            completions=completions,
            reports=reports,
            ended=ended,
            results=self._results(),
        )

    def _results(self) -> Sequence[Returned]:
        """Return the results to keep. Most workers have none, so it does not look."""
        if not self.has_results:
            return ()
        return [held.returned for held in self.completions if held.returned is not None]

    def claims(self) -> Counter[Claim]:
        """Count the jobs of each claim."""
        return Counter(map(_claim_of, self.held()))

    def held(self) -> Iterable[ClaimedJob]:
        """Return the jobs of the settlements."""
        return chain(self.completions, (held for _, held in self.reports))

    def halves(self) -> tuple["SettlementBatch", "SettlementBatch"]:
        """Split the batch. Neither part is empty if there are two settlements."""
        if self.completions and self.reports:
            return replace(self, reports=[]), replace(self, completions=[])

        done = self.completions
        ended = self.reports
        i = len(done) // 2
        j = len(ended) // 2
        first = SettlementBatch(done[:i], ended[:j], self.has_results)
        return first, SettlementBatch(done[i:], ended[j:], self.has_results)

    def parted(
        self, jobs: Container[int]
    ) -> tuple["SettlementBatch", "SettlementBatch"]:
        """Split the batch into the settlements of these jobs and the others."""
        chosen = self._where(lambda held: held.id in jobs)
        return chosen, self._where(lambda held: held.id not in jobs)

    def _where(self, is_chosen: Callable[[ClaimedJob], bool]) -> "SettlementBatch":
        return SettlementBatch(
            [held for held in self.completions if is_chosen(held)],
            [(report, held) for report, held in self.reports if is_chosen(held)],
            self.has_results,
        )


class PendingSettlements:
    """Settlements of one worker. `telemetry` counts each one once, when it is certain.

    Most go together. Some are set aside, so that the others do not wait for them.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._waiting = SettlementBatch([], [])
        self._aside = SettlementBatch([], [])
        self._first_at = float("inf")
        self._sent_before = False  # an earlier try may have succeeded
        self.has_results = False  # handlers of this worker return results to keep

    def __len__(self) -> int:
        return len(self._waiting) + len(self._aside)

    @property
    def aside(self) -> int:
        """Return how many settlements are set aside."""
        return len(self._aside)

    def completed(
        self,
        finished: Sequence[tuple[ClaimedJob, float]],
        example: tuple[int, str] | None = None,
    ) -> None:
        """Take attempts that succeeded, with their seconds and the trace of one."""
        self._waiting.completions.extend([held for held, _ in finished])
        self._telemetry.completed(finished, example)
        self._note()

    def ended(self, held: ClaimedJob, report: Report, *, aside: bool = False) -> None:
        """Take an attempt that did not succeed. `aside`: its job may be locked."""
        batch = self._aside if aside else self._waiting
        batch.reports.append((report, held))
        # If the handler completed the job, only the answer tells how it ended.
        if not report.completed_by_handler:
            self._telemetry.ended(held, report)

        self._note()

    def _note(self) -> None:
        if self._waiting and self._first_at == float("inf"):
            self._first_at = time.monotonic()

    def due_at(self, linger: float) -> float:
        """Return when to send the common batch; its first may wait `linger` seconds."""
        if len(self._waiting) >= FULL_BATCH:
            return 0.0
        return self._first_at + linger

    def take(self) -> SettlementBatch:
        """Take the common batch for one try. `done` or `put_back` must follow."""
        taken = replace(self._waiting, has_results=self.has_results)
        self._waiting = SettlementBatch([], [])
        self._first_at = float("inf")

        return taken

    def take_aside(self) -> SettlementBatch:
        """Take what was set aside for one try. `done` or `set_aside` must follow."""
        taken = replace(self._aside, has_results=self.has_results)
        self._aside = SettlementBatch([], [])
        return taken

    def put_back(
        self, taken: SettlementBatch, *, outcome_unknown: bool = False
    ) -> None:
        """Keep them for the next try. `outcome_unknown`: this try may have succeeded."""
        self._waiting = _joined(taken, self._waiting)
        self._sent_before |= outcome_unknown and bool(taken)
        self._note()

    def set_aside(
        self, taken: SettlementBatch, *, outcome_unknown: bool = False
    ) -> None:
        """Keep them apart from the others. `outcome_unknown` as in `put_back`."""
        self._aside = _joined(self._aside, taken)
        self._sent_before |= outcome_unknown and bool(taken)

    def held(self) -> Iterable[ClaimedJob]:
        """Return the jobs of the settlements."""
        return chain(self._waiting.held(), self._aside.held())

    def done(
        self,
        taken: SettlementBatch,
        claims: Counter[Claim],
        completed: set[int] | None,
        settled: set[int],
    ) -> list[ClaimedJob]:
        """Take the answer of the database: the ids of the jobs that were still ours.

        `completed` is None if every completed job was ours. Any other job had been
        fenced off. After an unknown outcome, our first try may have settled it.
        Returns the jobs that were not ours, without jobs whose process crashed.
        """
        if not taken:
            return []

        for claim, jobs in claims.items():
            claim.left -= jobs

        returned: list[ClaimedJob] = []
        crashed: list[ClaimedJob] = []
        if completed is not None:
            returned += [held for held in taken.completions if held.id not in completed]

        for report, held in taken.reports:
            # Its row is normally gone. If not, its transaction was rolled back.
            if report.completed_by_handler:
                self._resolved(held, report, was_rolled_back=held.id in settled)
            elif held.id not in settled:
                # A job whose process crashed is not returned: it stays suspect.
                (crashed if report.losses else returned).append(held)

        if (returned or crashed) and not self._sent_before:
            self._telemetry.stale([*returned, *crashed])

        self._sent_before = False
        return returned

    def _resolved(
        self, held: ClaimedJob, report: Report, *, was_rolled_back: bool
    ) -> None:
        """Count a job that its handler completed, now that the database has decided."""
        if was_rolled_back:
            self._telemetry.ended(held, report)
        else:
            self._telemetry.completed([(held, report.seconds)])


def _joined(first: SettlementBatch, second: SettlementBatch) -> SettlementBatch:
    # The next `take` says if there are results.
    return SettlementBatch(
        first.completions + second.completions, first.reports + second.reports
    )


def storable_forms(held: ClaimedJob, report: Report, refusal: str) -> Iterator[Report]:
    """Yield reports to send in place of one that the database refused."""
    text = f"the failure could not be stored: {refusal}"
    constant = made_up(
        "UnstorableError", message=text, category=Category.OTHER, kind=held.kind
    )

    has_failure = report.failure is not None
    failure = msgspec.json.encode(constant.record()).decode() if has_failure else None

    yield msgspec.structs.replace(report, failure=failure)

    # The last one holds nothing that came from a handler: whatever was refused, the job
    # must not stay claimed.
    yield Report(
        id=report.id,
        deliveries=report.deliveries,
        outcome=Outcome.RELEASE,
        delay=UNSTORABLE_SECONDS,
        reason="unstorable",
        completed_by_handler=report.completed_by_handler,
    )
