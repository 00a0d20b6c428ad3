"""riverqueue/river #779.

A key holds any text, up to its length in characters.
"""

import psycopg
import pytest

from redrive import enqueue
from redrive.errors import InvalidJob
from tests.postgres import Database

KEYS = ["😀" * 255, "\ufeff", " ", "a\n\r\t", "'\"\\%_", "\u202e", "é", "e\u0301"]


@pytest.mark.parametrize("name", ["idempotency_key", "ordering_key"])
def test_a_key_holds_any_text(database: Database, name: str) -> None:
    with psycopg.connect(database.url) as conn:
        made = [enqueue(conn, "a.b", **{name: key}) for key in KEYS]  # type: ignore[arg-type]
    assert len(set(made)) == len(KEYS), "each key is one of its own"
    stored = f"select {name} from redrive.jobs order by id"
    assert [key for (key,) in database.conn.execute(stored)] == KEYS  # type: ignore[call-overload]


@pytest.mark.parametrize("key", ["", "x" * 256, "\0", "\udc80"])
def test_another_key_is_refused_before_it_is_sent(database: Database, key: str) -> None:
    with psycopg.connect(database.url) as conn:
        with pytest.raises(InvalidJob, match="idempotency_key"):
            enqueue(conn, "a.b", idempotency_key=key)
        enqueue(conn, "a.b")
    assert database.value("select count(*) from redrive.jobs") == 1
