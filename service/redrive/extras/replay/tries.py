"""Trial of a few dead letters of a plan in a confined process."""

import contextlib
from collections.abc import Callable, Sequence
from typing import LiteralString

from redrive.database.rows import Connection, rows
from redrive.dead_letters.campaigns.tried import Tried
from redrive.encryption import Whose, shown_failure
from redrive.extras.replay.runner import ConfinedRunner, Died, TookTooLong
from redrive.handlers import Handlers, decode_object, encode_json
from redrive.rules.attempts.failure import made_up
from redrive.rules.model import Category
from redrive.rules.rows import Fields
from redrive.signals import seconds
from redrive.worker.crash import Crash
from redrive.worker.protocol import Report, Work

MAX_SECONDS = 10.0
"""Limit for a handler whose policy allows more."""
SLACK_SECONDS = 0.5
"""Extra time after the timeout, for an async handler to react to its cancellation."""
MAX_CAUSE = 200
LATE = "DeadlineExceeded"
"""Name that a runner gives to a timeout."""

_CHOSEN: LiteralString = """
    select d.id, d.kind, d.queue, d.tenant, d.idempotency_key, d.ordering_key, d.headers,
           d.payload::text as payload, d.deliveries, d.redrives, d.fingerprint,
           date_part('epoch', d.created_at) as created,
           (select jsonb_build_object('delivery', p.deliveries, 'data', p.data)
            from redrive.checkpoints p where p.job = d.id) as checkpoint
    from (select j.n, j.id, j.redrives, count(*) over letters as size,
                 least(2 * row_number() over (letters order by j.n) - 1,
                       2 * row_number() over (letters order by j.n desc)) as turn
          from redrive.campaign_jobs j
          join redrive.dead_letters d on d.id = j.id and d.redrives = j.redrives
          where j.campaign = %s and j.state is null and d.kind = any (%s)
          window letters as (partition by d.fingerprint)
          order by turn, size desc, j.n limit %s) c
    join redrive.dead_letters d on d.id = c.id and d.redrives = c.redrives
    order by c.turn, c.size desc, c.n"""
"""Choice of dead letters: the oldest of each group, largest group first.

Then follow the newest of each group, the second oldest, and so on."""


def try_some(  # noqa: PLR0913 # dead letters and handlers
    conn: Connection,
    plan: int,
    kinds: Sequence[str],
    handlers: Handlers,
    target: str,
    count: int,
    progress: Callable[[int], None],
) -> Tried:
    """Run the handlers of a few dead letters of a plan, and store nothing.

    Args:
        kinds: kinds of the plan.
        handlers: the registry that `target` names, as `module:attribute`.

    Raises:
        CannotConfine: no confined process can be started.
    """
    trial = _Trial(handlers, target)
    with contextlib.closing(trial):
        known = [kind for kind in kinds if handlers.get(kind)]
        for row in rows(conn, _CHOSEN, plan, known, count):
            trial.run(row)
            progress(1)

    return trial.tried


class _Trial:
    """Counter of results, with one runner that is replaced when it is unusable."""

    def __init__(self, handlers: Handlers, target: str) -> None:
        self.tried = Tried()
        self._handlers = handlers
        self._target = target
        self._runner: ConfinedRunner | None = None

    def run(self, row: Fields) -> None:
        """Run an attempt of a dead letter, and count its result."""
        if self._runner is None:
            self._runner = ConfinedRunner(self._target)

        runner = self._runner
        failure = self._failure(runner, row)

        # The refused call may be the cause of the failure, so it counts first.
        if runner.calls:
            self.tried.stopped_at_call += 1
        elif failure is None:
            self.tried.returned += 1
        elif failure["error_class"] == LATE:
            self.tried.timed_out += 1
        else:
            self._count_failure(row, failure)

    def _count_failure(self, row: Fields, failure: Fields) -> None:
        cause = _cause_of(failure)
        failed = self.tried.failed
        failed[cause] = failed.get(cause, 0) + 1

        if failure["fingerprint"] == row["fingerprint"]:
            self.tried.again += 1

    def _failure(self, runner: ConfinedRunner, row: Fields) -> Fields | None:
        """Return the failure of the attempt; None if its handler returned."""
        kind = row["kind"]
        limit = min(seconds(self._handlers.known(kind).policy.timeout), MAX_SECONDS)
        work = _work(row)

        patience = limit + SLACK_SECONDS
        try:
            report = runner.run(work, row["queue"], patience)
        except TookTooLong:
            self.close()
            return _made_up(LATE, "", kind)
        except Died:
            crash = Crash(runner.status())
            self.close()
            return _made_up("RunnerLost", f"its process died: {crash}", kind)

        return report and _failure_of(report)

    def close(self) -> None:
        """End the runner, if there is one."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None


def _cause_of(failure: Fields) -> str:
    cause = failure["error_class"]
    message = failure["message"]
    if message:
        cause = f"{cause}: {message}"

    return cause[:MAX_CAUSE]


def _made_up(error_class: str, message: str, kind: str) -> Fields:
    """Return the failure of an attempt that could not report one."""
    return made_up(error_class, message, Category.LOST, kind).record()


def _failure_of(report: Report) -> Fields:
    """Return the failure, or a substitute if the handler released its job."""
    if report.failure is None:
        why = report.reason or str(report.outcome)
        return {"error_class": why, "message": "", "fingerprint": None}

    failure = decode_object(report.failure) | {"deliveries": report.deliveries}
    return shown_failure(report.id, failure)


def _work(row: Fields) -> Work:
    """Return the job in the form that a runner would get after a redrive."""
    extras = {
        "redrives": row["redrives"] + 1,
        "tenant": row["tenant"],
        "headers": row["headers"],
        "idempotency_key": Whose.of(row).idempotency_key,
        "ordering_key": row["ordering_key"],
        "checkpoint": row["checkpoint"],
    }
    text = encode_json(extras)
    return Work(
        id=row["id"],
        deliveries=row["deliveries"] + 1,
        attempt=1,
        kind=row["kind"],
        payload=row["payload"],
        extras=text.decode(),
        lane=1,
        created=row["created"],
    )
