"""psycopg/psycopg #20, for SQLAlchemy.

A connection streams all results through server-side cursors. Jobs are enqueued on it.
"""

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from redrive import enqueue, enqueue_many
from tests.postgres import Database
from trials.strangers.test_sessions_of_sqlalchemy import url_of


def test_jobs_are_enqueued_where_results_are_streamed(database: Database) -> None:
    engine = create_engine(url_of(database, "psycopg"))
    with engine.connect().execution_options(yield_per=10) as conn:
        enqueue(conn, "a.b")
        enqueue_many(conn, [{"kind": "a.b"}] * 3)
        conn.commit()
    engine.dispose()
    assert database.value("select count(*) from redrive.jobs") == 4


def test_a_savepoint_that_is_rolled_back_takes_its_jobs_with_it(
    database: Database,
) -> None:
    engine = create_engine(url_of(database, "psycopg"))
    with Session(engine) as session:
        enqueue(session, "a.b")
        with session.begin_nested() as savepoint:
            enqueue(session, "a.c")
            enqueue_many(session, [{"kind": "a.c"}])
            savepoint.rollback()
        session.commit()
    engine.dispose()
    assert database.column("select kind from redrive.jobs") == ["a.b"]
