"""What the database says of a job."""

from typing import Any, NamedTuple

from tests.postgres import Session


class Dead(NamedTuple):
    """A dead letter."""

    reason: str
    category: str
    error_class: str
    message: str
    attempts: int
    deliveries: int
    losses: int


def dead(session: Session, job: int) -> Dead | None:
    """The latest dead letter of a job, or None."""
    found = session.rows(
        "select reason, category, error_class, message, attempts, deliveries, losses"
        " from redrive.dead_letters where id = %s order by redrives desc limit 1",
        job,
    )
    return Dead(*found[0]) if found else None


def reasons(session: Session) -> dict[int, str]:
    """Why each dead job died."""
    return dict(session.rows("select id, reason from redrive.dead_letters"))  # type: ignore[arg-type]


def letters(session: Session) -> dict[int, tuple[str, str, str]]:
    """(reason, error_class, message) of each dead letter."""
    rows = session.rows(
        "select id, reason, error_class, message from redrive.dead_letters"
    )
    return {
        job: (reason, error_class, message)
        for job, reason, error_class, message in rows
    }


def failures(session: Session, job: int) -> list[tuple[Any, ...]]:
    """(attempt, deliveries, error_class, message) of each failure, oldest first."""
    return session.rows(
        "select attempt, deliveries, error_class, message from redrive.failures"
        " where job = %s order by deliveries",
        job,
    )


def claims_whatever_comes(session: Session) -> None:
    """Let every worker claim jobs of all kinds."""
    session.rows("update redrive.workers set kinds = null")


def live(session: Session) -> int:
    """Jobs that have not ended."""
    return int(session.value("select count(*) from redrive.jobs"))


def row(session: Session, job: int) -> dict[str, Any]:
    """A live job's row, or {}."""
    return session.value(
        "select coalesce((select to_jsonb(j) from redrive.jobs j where j.id = %s), '{}')",
        job,
    )


def counted(session: Session) -> dict[str, int]:
    """Every counter, added up by event."""
    return dict(
        session.rows("select event, sum(n)::bigint from redrive.totals group by event")
    )  # type: ignore[arg-type]
