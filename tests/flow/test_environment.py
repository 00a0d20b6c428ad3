"""Handlers do not find in their environment what is the worker's alone."""

import base64
import json
import os
import subprocess
import sys

from psycopg import sql

from tests.factories import make_job
from tests.flow.harness import Workers
from tests.postgres import Database
from tests.sql.test_database_settings import SETTINGS

KEYS = f"k1 {base64.b64encode(b'Zx9-canary' * 4)[:43].decode()}="


def test_a_handler_gets_neither_the_database_nor_the_keys(
    database: Database, workers: Workers
):
    """It inherited the database's URL and the keyring, and so did whatever it started."""
    own = {"REDRIVE_DATABASE_URL": database.url, "REDRIVE_ENCRYPTION_KEYS": KEYS}
    subprocess.run(
        [sys.executable, "-m", "redrive", "enqueue", "work.environment", '{"n": 1}'],
        env=os.environ | own,
        check=True,
        capture_output=True,
    )
    assert database.value("select payload::text from redrive.jobs").startswith(
        '{"$redrive"'
    )

    workers.run(
        redrive_encryption_keys=KEYS, pgpassword="Zx9-canary", stripe_key="sk_1"
    )

    environment, status, said = json.loads((workers.home / "environment").read_text())
    assert not {"REDRIVE_DATABASE_URL", "PGPASSWORD"} & environment.keys()
    assert environment["STRIPE_KEY"] == "sk_1"
    assert KEYS not in environment.values()
    assert "Zx9-canary" not in json.dumps(environment)
    assert (status, "REDRIVE_ENCRYPTION_KEYS" in said) == (64, True), (
        "stored in the clear"
    )


def test_a_worker_goes_on_whatever_the_database_sets_for_its_sessions(
    database: Database, workers: Workers
) -> None:
    """`array_nulls=off` stopped every claim. All settings at once."""
    name = sql.Identifier(database.conn.info.dbname)
    for setting, value in SETTINGS.items():
        statement = sql.SQL("alter database {} set {} = {}")
        database.conn.execute(statement.format(name, sql.Identifier(setting), value))
    for kind in ("work.sync", "fail.bug"):
        make_job(database.conn, kind=kind)

    workers.run()

    assert database.value("select count(*) from redrive.jobs") == 0
    assert database.column("select kind from redrive.dead_letters") == ["fail.bug"]


def test_a_handler_gets_what_is_named(database: Database, workers: Workers):
    """Name by name."""
    database.rows("select redrive.enqueue('work.environment')")

    workers.run(redrive_runner_env="REDRIVE_TEST_*", stripe_key="sk_1", shop_url="x")

    environment = json.loads((workers.home / "environment").read_text())[0]
    assert {"PATH", "REDRIVE_TEST_HOME", "REDRIVE_TEST_URL"} <= environment.keys()
    assert (
        not {"STRIPE_KEY", "SHOP_URL", "REDRIVE_QUEUES", "REDRIVE_DATABASE_URL"}
        & environment.keys()
    )
