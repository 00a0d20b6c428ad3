"""Redrive: its command line as the worker, its Python functions as the producer."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import line
import psycopg

from redrive.database.embedded import free_port
from redrive.database.schema.migrate import migrate
from redrive.enqueue import enqueue, enqueue_many


async def setup() -> None:
    """Make the schema."""
    with psycopg.connect(line.URL, autocommit=True) as conn:
        migrate(conn)


async def worker(config: dict[str, Any]) -> None:
    """Become `redrive worker`, with everything on; or, with `fleet`, many workers in one process."""
    fleet = str(Path(__file__).with_name("fleet_redrive.py"))
    program = [fleet] if "fleet" in config else ["-m", "redrive", "worker"]
    environment = {
        "REDRIVE_DATABASE_URL": line.URL,
        "REDRIVE_HANDLERS": "redrive_handlers:jobs",
        "REDRIVE_SLOTS": str(config.get("slots", 16)),
        "REDRIVE_RUNNERS": str(config.get("runners", 1)),
        "REDRIVE_HTTP_PORT": str(free_port()),
        "REDRIVE_LOG_LEVEL": os.environ.get(
            "BENCH_LOG", "error"
        ),  # a line per failed job is for people, and peers say nothing either
        "OTEL_EXPORTER_OTLP_ENDPOINT": config.get("collector", ""),
        "PYTHONPATH": os.pathsep.join(
            (str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))
        ),
        "BENCH_CONFIG": json.dumps(config),
        **config.get("settings", {}),
    }
    os.execve(sys.executable, [sys.executable, *program], os.environ | environment)


async def opener() -> tuple[line.One, line.Many]:
    """Insert on one connection, each call a transaction."""
    conn = psycopg.connect(line.URL, autocommit=True)

    async def one(payload: dict[str, Any]) -> None:
        enqueue(conn, "noop", payload)

    async def many(payloads: list[dict[str, Any]]) -> None:
        with conn.transaction():
            enqueue_many(
                conn, [{"kind": "noop", "payload": payload} for payload in payloads]
            )

    return one, many


if __name__ == "__main__":
    line.main(setup, worker, opener)
