"""Settlements that the database does not know of yet.

Each stays here until the database has answered for it: taken for a try, put back when the try came
to nothing.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import msgspec

from redrive.rules.failure import made_up
from redrive.rules.model import Category
from redrive.rules.settlement import Outcome
from redrive.worker.exchange import Settlements
from redrive.worker.protocol import Report
from redrive.worker.supervisor.held import Claim, Held
from redrive.worker.supervisor.telemetry import Telemetry

FULL_BATCH = 500
"""Settlements that go at once; fewer may wait for company."""

UNSTORABLE_SECONDS = 60.0
"""When a job runs again whose settlement the database refuses in every form."""


_claim_of = attrgetter("claim")


class SettlementBatch(NamedTuple):
    """Settlements sent together: completions, and reports of attempts that ended otherwise."""

    completions: list[Held]
    reports: list[tuple[Report, Held]]
    has_results: bool = False

    def __bool__(self) -> bool:
        return bool(self.completions or self.reports)

    def columns(self, claims: Counter[Claim]) -> Settlements:
        """What the database is to know of them; `claims` as below."""
        return Settlements(
            [
                (held.id, held.deliveries, held.claim.id, held.batch.worker)
                for held in self.completions
            ],
            [(report, held.claim.id, held.worker) for report, held in self.reports],
            [claim.id for claim, jobs in claims.items() if jobs == claim.left],
            # not looked for where there has never been one
            [held.returned for held in self.completions if held.returned is not None]
            if self.has_results
            else (),
        )

    def claims(self) -> Counter[Claim]:
        """How many of the jobs of each claim these are."""
        return Counter(map(_claim_of, self.held()))

    def held(self) -> Iterable[Held]:
        """Their jobs."""
        return chain(self.completions, (held for _, held in self.reports))


class PendingSettlements:
    """Those of one worker's jobs. `telemetry` hears of each once, when it is known to be one."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._waiting = SettlementBatch([], [])
        self._first_at = float("inf")
        self._sent_before = False  # an earlier try may have been carried out
        self.has_results = False  # handlers here return what is to be kept

    def __len__(self) -> int:
        return len(self._waiting.completions) + len(self._waiting.reports)

    def completed(
        self, finished: Sequence[tuple[Held, float]], example: tuple[int, str] | None = None
    ) -> None:
        """Attempts succeeded, with the seconds each took, and the trace of one of them."""
        self._waiting.completions.extend([held for held, _ in finished])
        self._telemetry.completed(finished, example)
        self._note()

    def ended(self, held: Held, report: Report) -> None:
        """An attempt ended otherwise."""
        self._waiting.reports.append((report, held))
        if not report.may_be_gone:
            self._telemetry.ended(held, report)
        self._note()

    def _note(self) -> None:
        if self._first_at == float("inf"):
            self._first_at = time.monotonic()

    def due_at(self, linger: float) -> float:
        """When to send them, if the first may wait for `linger` seconds; monotonic."""
        return 0.0 if len(self) >= FULL_BATCH else self._first_at + linger

    def take(self) -> SettlementBatch:
        """All of them, for one try. `done` or `put_back` must follow."""
        taken = self._waiting._replace(has_results=self.has_results)
        self._waiting = SettlementBatch([], [])
        self._first_at = float("inf")
        return taken

    def put_back(self, taken: SettlementBatch, *, may_be_done: bool = False) -> None:
        """Keep them for the next try. `may_be_done`: this one may have been carried out."""
        self._waiting = SettlementBatch(
            taken.completions + self._waiting.completions, taken.reports + self._waiting.reports
        )
        self._sent_before |= may_be_done and bool(taken)
        if self:
            self._note()

    def held(self) -> Iterable[Held]:
        """Their jobs."""
        return self._waiting.held()

    def done(
        self,
        taken: SettlementBatch,
        claims: Counter[Claim],
        completed: set[int] | None,
        settled: set[int],
    ) -> list[Held]:
        """The database has answered: these ids were ours to settle; `completed` None: all of them.

        The others had been fenced off; after an unknown outcome a missing one may be our own
        earlier success. Returns those of them whose process did not die under them.
        """
        if not taken:
            return []
        for claim, jobs in claims.items():
            claim.left -= jobs
        returned: list[Held] = []
        crashed: list[Held] = []
        if completed is not None:
            returned += [held for held in taken.completions if held.id not in completed]
        for report, held in taken.reports:
            if report.may_be_gone:
                self._resolved(held, report, was_rolled_back=held.id in settled)
            elif held.id not in settled:
                (crashed if report.losses else returned).append(held)
        if (returned or crashed) and not self._sent_before:
            self._telemetry.stale([*returned, *crashed])
        self._sent_before = False
        return returned

    def _resolved(self, held: Held, report: Report, *, was_rolled_back: bool) -> None:
        """Only the database could say whether a handler's own transaction completed the job."""
        if was_rolled_back:
            self._telemetry.ended(held, report)
        else:
            self._telemetry.completed([(held, report.seconds)])


def storable_forms(held: Held, report: Report, refusal: str) -> Iterator[Report]:
    """What to say in place of a report that the database refused."""
    text = f"the failure could not be stored: {refusal}"
    constant = made_up("UnstorableError", text, Category.OTHER, held.kind)
    has_failure = report.failure is not None
    failure = msgspec.json.encode(constant.record()).decode() if has_failure else None
    yield msgspec.structs.replace(report, failure=failure)
    # The last one holds nothing that came from a handler: whatever was refused, the job must not
    # stay claimed.
    yield Report(
        report.id,
        report.deliveries,
        Outcome.RELEASE,
        UNSTORABLE_SECONDS,
        reason="unstorable",
        may_be_gone=report.may_be_gone,
    )
