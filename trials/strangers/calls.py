"""Every call that a producer or a handler makes on a connection of its own."""

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

from redrive import Job, enqueue, enqueue_many, open_batch, wait
from redrive.database import drivers
from redrive.enqueue import enqueue_reporting
from redrive.idempotency import idempotent
from tests.factories import claim, make_worker
from tests.postgres import connect

TEXT = "Zoë O'Hara \\ \t\n\r % :p0 $1 日本 😀"
"""A text with a meaning in COPY, in placeholders, and outside of Latin-1."""

PLAIN = [{"kind": "a.b", "payload": {"text": TEXT, "n": n}} for n in range(3)]
OTHER = {"kind": "a.b", "payload": {"text": TEXT}, "idempotency_key": f"{TEXT} once"}
ADDED = 9


async def call_all(conn: Any, url: str, begin: Any = None, commit: Any = None) -> None:
    """Make all calls, and see in the database that each has done its work."""
    begin, commit = begin or _nothing, commit or conn.commit
    await _answer(begin())
    await _producer(conn)
    assert drivers.in_transaction(conn), "the caller's transaction is still open"
    with connect(url) as look:
        assert _counted(look) == 0, "nothing is there before the commit"
        await _answer(commit())
        assert _counted(look) == ADDED
        texts = "select count(*) from redrive.jobs where payload ->> 'text' = %s"
        assert look.execute(texts, (TEXT,)).fetchone() == (6,)
        keys = "select idempotency_key, ordering_key, tenant from redrive.jobs where queue = 'q'"
        assert look.execute(keys).fetchone() == (TEXT, TEXT, "t")
        await _handler(conn, look, begin, commit)


async def _producer(conn: Any) -> None:
    first = await _answer(enqueue(conn, "a.b", {"text": TEXT}))
    options: dict[str, Any] = {
        "queue": "q",
        "run_at": datetime.now(UTC) + timedelta(hours=1),
        "expires_in": 7200,
        "headers": {"note": TEXT},
        "idempotency_key": TEXT,
        "ordering_key": TEXT,
        "tenant": "t",
        "priority": 3,
    }
    made = await _answer(
        enqueue_reporting(conn, "a.b", {"text": TEXT, "n": 1}, **options)
    )
    assert (made.created, made.outcome) == (True, "enqueued")
    unique = {"unique_for": 3600, "unique_by": ["n"]}
    await _answer(enqueue(conn, "a.c", {"n": 1}, **unique))
    assert await _answer(enqueue_many(conn, [*PLAIN, OTHER])) == 4
    opened = open_batch(conn, on_end={"kind": "a.d"})
    if drivers.is_async(conn):
        async with opened as batch:
            await enqueue(conn, "a.b", {}, batch=batch)
    else:
        with opened as batch:
            enqueue(conn, "a.b", {}, batch=batch)
    assert await _answer(idempotent(conn, TEXT)) is True
    assert await _answer(idempotent(conn, TEXT)) is False
    assert (await _answer(wait(conn, first, timeout=0))).outcome == "live"


async def _handler(conn: Any, look: Any, begin: Any, commit: Any) -> None:
    worker = make_worker(look)
    kept, undone, *_ = claim(look, worker)
    for one, end in ((undone, drivers.roll_back), (kept, lambda _: commit())):
        deadline = datetime.now(UTC)
        job = Job(
            id=one.id,
            kind=one.kind,
            deliveries=one.deliveries,
            worker=worker,
            deadline=deadline,
        )
        await _answer(begin())
        await _answer(job.complete(conn))
        used = job.completed_on
        assert drivers.in_transaction(used), "the handler has not committed"
        await _answer(end(used))
        assert not drivers.in_transaction(used)
    left = "select id from redrive.jobs where id = any(%s)"
    assert look.execute(left, ([kept.id, undone.id],)).fetchall() == [(undone.id,)]
    assert (await _answer(wait(conn, kept.id, timeout=0))).outcome in {
        "succeeded",
        "unknown",
    }
    assert (await _answer(wait(conn, undone.id, timeout=0))).outcome == "live"


def _nothing() -> None:
    """Begin nothing: the driver begins by itself."""


def _counted(look: Any) -> int:
    return look.execute("select count(*) from redrive.jobs").fetchone()[0]


async def _answer(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found
