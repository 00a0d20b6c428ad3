"""Orders and their jobs, in a database that Alembic made."""

import asyncio
from collections.abc import Iterator

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from orders import Order, jobs, place, place_async
from redrive.testing import assert_enqueued, enqueued, postgres, run_enqueued

ALEMBIC = Config("alembic.ini")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A database that Alembic made from nothing."""
    with postgres() as url, pytest.MonkeyPatch.context() as patch:
        server = create_engine(
            url.replace("postgresql:", "postgresql+psycopg:", 1),
            isolation_level="AUTOCOMMIT",
        )
        with server.connect() as conn:
            conn.execute(text("create database orders"))
        server.dispose()
        patch.setenv(
            "DATABASE_URL",
            server.url.set(drivername="postgresql", database="orders").render_as_string(
                hide_password=False
            ),
        )
        command.upgrade(ALEMBIC, "head")
        yield server.url.set(database="orders").render_as_string(hide_password=False)


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    """A session whose transaction is rolled back."""
    engine = create_engine(url)
    with Session(engine) as session:
        yield session
    engine.dispose()


def test_an_order_is_confirmed(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    order = place(session, "ada")

    (ended,) = run_enqueued(jobs, session).values()

    assert ended.outcome == "completed"
    assert f"we have your order {order.id}" in capfd.readouterr().out


def test_a_rollback_takes_the_job_along(session: Session) -> None:
    place(session, "ada")
    assert_enqueued(session, "order.confirm", queue="mail")

    session.rollback()

    assert (session.query(Order).count(), enqueued(session)) == (0, [])


def test_an_async_session_does_the_same(url: str) -> None:
    async def place_one() -> None:
        engine = create_async_engine(url)
        async with AsyncSession(engine) as session:
            order = await place_async(session, "ada")
            await assert_enqueued(session, "order.confirm", {"order": order.id})
            await session.rollback()
            assert await enqueued(session) == []
        await engine.dispose()

    asyncio.run(place_one())


def test_alembic_leaves_redrive_alone_and_can_run_again(url: str) -> None:
    command.check(ALEMBIC)  # raises where --autogenerate would write anything
    command.downgrade(ALEMBIC, "base")
    command.upgrade(ALEMBIC, "head")
