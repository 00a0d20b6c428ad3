"""Django's connection, as enqueue() and job.complete() take it; the app is in examples/django."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import django
import psycopg
import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.db.utils import ConnectionHandler
from django.utils.connection import ConnectionProxy
from psycopg.conninfo import conninfo_to_dict

from redrive import Job, StaleClaim, enqueue, enqueue_many
from redrive.database.drivers import in_transaction
from redrive.testing import assert_enqueued, enqueued
from redrive.worker.run.threads import Threads
from redrive.worker.run.transaction import end_transaction
from tests.postgres import Database


@pytest.fixture
def connections(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if not settings.configured:
        settings.configure(USE_TZ=True, LOGGING_CONFIG=None)
        django.setup()
    parameters = conninfo_to_dict(database.url)
    default = {
        "ENGINE": "django.db.backends.postgresql",
        "OPTIONS": {"isolation_level": 2, "sslmode": "disable"},
        "NAME": parameters["dbname"],
        "USER": parameters["user"],
        "HOST": parameters["host"],
        "PORT": parameters["port"],
    }
    connections = ConnectionHandler({"default": default})
    monkeypatch.setattr(transaction, "get_connection", lambda _: connections["default"])
    yield connections
    connections.close_all()


def test_a_rollback_takes_jobs_along(connections: Any, database: Database):
    connection = connections["default"]
    with transaction.atomic():
        kept = enqueue(connection, "page.send", {"n": 1})
        with transaction.atomic():
            enqueue(connection, "page.send")
            enqueue_many(
                connection, [{"kind": "page.send"}, {"kind": "page.send", "delay": 5}]
            )
            assert len(enqueued(connection)) == 4
            transaction.set_rollback(True)
        assert enqueued(database.conn) == []

    assert assert_enqueued(database.conn, "page.send")["id"] == kept


def test_a_transaction_that_a_handler_left_open_is_rolled_back_from_another_thread(
    connections: Any,
):
    """`django.db.connection` is another connection in each thread; the handler's is meant."""
    job = Job(id=1, kind="page.send", deadline=datetime.now(UTC))

    def handle() -> None:
        connections["default"].set_autocommit(False)
        with pytest.raises(
            StaleClaim
        ):  # nobody has claimed it: what is open is the point
            job.complete(ConnectionProxy(connections, "default"))

    async def run() -> bool:
        threads = Threads("handler", 1)
        await threads.call(handle)
        was_open = await end_transaction(job.completed_on, threads)
        assert not in_transaction(job.completed_on)
        await threads.call(connections.close_all)
        return was_open

    assert asyncio.run(run())


def test_a_connection_that_was_never_used_has_no_transaction(connections: Any):
    assert not in_transaction(connections["default"])


def test_redrive_goes_where_the_connection_leads(
    connections: Any, database: Database, monkeypatch: pytest.MonkeyPatch
):
    from redrive.django import database as of_the_app  # it wants settings

    monkeypatch.setattr(of_the_app, "connections", connections)
    with psycopg.connect(of_the_app.conninfo()) as conn:
        assert conn.info.dbname == conninfo_to_dict(database.url)["dbname"]
        assert conn.info.get_parameters()["sslmode"] == "disable"


def test_a_database_that_is_no_postgres_is_refused(
    connections: Any, monkeypatch: pytest.MonkeyPatch
):
    from redrive.django import database as of_the_app  # as above

    sqlite = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3"}})
    monkeypatch.setattr(of_the_app, "connections", sqlite)
    with pytest.raises(
        ImproperlyConfigured, match=r"'default'.* is sqlite; let REDRIVE_DATABASE"
    ):
        of_the_app.conninfo()
