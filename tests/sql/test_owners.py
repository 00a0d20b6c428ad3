"""Owners of queues and kinds."""

import psycopg
import pytest

from redrive.dead_letters.groups import owners
from redrive.dead_letters.groups.owners import Owner, parse_pattern
from redrive.errors import InvalidJob
from tests.postgres import Database

PATTERNS = ("*", "payments", "*/mail.send", "payments/mail.send")


@pytest.mark.parametrize(
    ("left_out", "queue", "kind", "owner"),
    [
        (0, "payments", "mail.send", "payments/mail.send"),
        (1, "payments", "mail.send", "*/mail.send"),
        (2, "payments", "mail.send", "payments"),
        (3, "payments", "mail.send", "*"),
        (4, "payments", "mail.send", None),
        (0, "payments", "charge", "payments"),
        (0, "payments", None, "payments"),
        (0, "bulk", "mail.send", "*/mail.send"),
        (0, "bulk", None, "*"),
    ],
)
def test_the_most_specific_pattern_decides(
    database: Database, left_out: int, queue: str, kind: str | None, owner: str | None
) -> None:
    """A dead letter queue without an owner becomes a graveyard."""
    kept = PATTERNS[: len(PATTERNS) - left_out]
    named = {pattern: f"team-{n}" for n, pattern in enumerate(kept)}
    for pattern, name in named.items():
        wanted = Owner(*parse_pattern(pattern), name, "#on-call")
        owners.set_owner(database.conn, wanted, actor="ada", why="hand-off")

    found = database.value("select redrive.owner_of_v1(%s, %s)", queue, kind)

    assert found == (named[owner] if owner else None)


def test_an_owner_is_replaced_and_removed(database: Database) -> None:
    """Each change is in the audit log."""
    for name in ("payments", "billing", None):
        owners.set_owner(
            database.conn, Owner("q", "*", name, None), actor="ada", why="moved"
        )
        found = [row.owner for row in owners.find(database.conn)]
        assert found == ([name] if name else [])

    assert database.rows(
        "select detail ->> 'owner' from redrive.audit where action = 'owner' order by id"
    ) == [("payments",), ("billing",), (None,)]


@pytest.mark.parametrize("text", ["", "/", "1q", "q/1k", "q/k/k", "q*", "*/"])
def test_a_pattern_that_names_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidJob):
        parse_pattern(text)


def test_an_owner_is_a_name(database: Database) -> None:
    for name in ("", "two words", "x" * 64, '"'):
        with pytest.raises(psycopg.errors.CheckViolation):
            owners.set_owner(
                database.conn, Owner("q", "*", name), actor="ada", why="moved"
            )
