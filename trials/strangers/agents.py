"""Make all calls under an agent: `python -m trials.strangers.agents AGENT DRIVER URL`.

An agent changes the drivers for the whole process, so each has a process of its own.
"""

import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def no_agent() -> None:
    """Change nothing."""


def datadog() -> None:
    os.environ["DD_INSTRUMENTATION_TELEMETRY_ENABLED"] = "false"
    os.environ["DD_DBM_PROPAGATION_MODE"] = (
        "full"  # it then adds comments to statements
    )
    import ddtrace

    ddtrace.patch(psycopg=True, sqlalchemy=True, asyncpg=True, django=True)


def elastic() -> None:
    import elasticapm

    elasticapm.instrument()
    client = elasticapm.Client(
        service_name="trial", transport_class="elasticapm.transport.base.Transport"
    )
    client.begin_transaction("request")  # it records only within one


def new_relic() -> None:
    os.environ["NEW_RELIC_DEVELOPER_MODE"] = "true"
    os.environ["NEW_RELIC_LOG"] = "/dev/null"
    import newrelic.agent

    newrelic.agent.initialize()


def sentry() -> None:
    import sentry_sdk
    from sentry_sdk.integrations.asyncpg import AsyncPGIntegration
    from sentry_sdk.integrations.sqlalchemy import SqlalchemyIntegration

    integrations = [AsyncPGIntegration(), SqlalchemyIntegration()]
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        traces_sample_rate=1.0,
        integrations=integrations,
        transport=lambda _: None,
    )
    sentry_sdk.start_transaction(name="request").__enter__()


def opentelemetry() -> None:
    from opentelemetry.instrumentation.asyncpg import AsyncPGInstrumentor
    from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
    from opentelemetry.instrumentation.sqlalchemy import SQLAlchemyInstrumentor

    PsycopgInstrumentor().instrument(enable_commenter=True)
    AsyncPGInstrumentor().instrument()
    SQLAlchemyInstrumentor().instrument(enable_commenter=True)


AGENTS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (no_agent, datadog, elastic, new_relic, sentry, opentelemetry)
}


def psycopg_sync(url: str, _: str) -> Any:
    import psycopg

    return psycopg.connect(url)


def psycopg_async(url: str, _: str) -> Any:
    import psycopg

    return psycopg.AsyncConnection.connect(url)


def sqlalchemy_sync(_: str, address: str) -> Any:
    from sqlalchemy import create_engine

    return create_engine(f"postgresql+psycopg://{address}").connect()


def sqlalchemy_async(_: str, address: str) -> Any:
    from sqlalchemy.ext.asyncio import create_async_engine

    return create_async_engine(f"postgresql+asyncpg://{address}").connect().start()


def asyncpg(_: str, address: str) -> Any:
    import asyncpg

    return asyncpg.connect(f"postgresql://{address}")


def django(url: str, _: str) -> Any:
    from trials.strangers.django_connection import connection

    return connection(url)


DRIVERS: dict[str, Callable[[str, str], Any]] = {
    function.__name__: function
    for function in (
        psycopg_sync,
        psycopg_async,
        sqlalchemy_sync,
        sqlalchemy_async,
        asyncpg,
        django,
    )
}


async def main(driver: str, url: str) -> None:
    """Make all calls on one connection, opened after the agent has come."""
    from psycopg.conninfo import conninfo_to_dict

    from trials.strangers.calls import call_all

    parts = conninfo_to_dict(url)
    address = f"{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    conn = DRIVERS[driver](url, address)
    if inspect.isawaitable(conn):
        conn = await conn
    if driver == "asyncpg":
        await call_all(
            conn, url, lambda: conn.execute("begin"), lambda: conn.execute("commit")
        )
    elif driver == "django":
        conn.set_autocommit(False)
        await call_all(conn, url)
    else:
        await call_all(conn, url)


def under_agent(agent: str, driver: str, url: str) -> None:
    """Run the calls in a process of their own, and fail with what it printed."""
    command = [sys.executable, "-m", "trials.strangers.agents", agent, driver, url]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stdout[-17:]) == (0, "all calls worked\n"), ran.stderr


if __name__ == "__main__":
    _, agent, driver, url = sys.argv
    AGENTS[agent]()
    asyncio.run(main(driver, url))
    print("all calls worked")
