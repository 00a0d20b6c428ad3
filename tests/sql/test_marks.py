"""Marks: what changed when, for the axes of charts."""

from datetime import timedelta

import pytest

from redrive.observability.marks import read_marks
from redrive.observability.series import now_of
from redrive.rules.marks import Mark, change_before, sentence
from tests.factories import make_job, make_worker
from tests.postgres import Connection, Database

HOUR = timedelta(hours=1)


def marks(conn: Connection, queue: str | None = None, kind: str | None = None) -> list[Mark]:
    now = now_of(conn)
    return read_marks(conn, now - HOUR, now + HOUR, queue, kind)


def test_a_pause_is_a_mark_of_its_queue(database: Database) -> None:
    database.rows("select redrive.pause_v1('mail', 'ada', 'a secret reason')")

    (mark,) = marks(database.conn, "mail")
    assert (mark.what, mark.name, mark.actor, mark.queues) == ("pause", "mail", "ada", ["mail"])
    assert marks(database.conn, "bills") == []
    assert "secret" not in repr(mark)
