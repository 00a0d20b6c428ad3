"""Bogdanp/dramatiq #528, #586; un1t's report to JasperSui/fastapi-injectable #83.

A plain function runs async code in an event loop of its own, one after the other in the
same thread. Context variables of the job are there, and what it leaves harms no later one.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from redrive import Handlers
from redrive.testing import run

tenant = contextvars.ContextVar("tenant", default="none")


def by_run(work: Coroutine[Any, Any, str]) -> str:
    return asyncio.run(work)


def by_runner(work: Coroutine[Any, Any, str]) -> str:
    with asyncio.Runner() as runner:
        return runner.run(work)


def by_hand(work: Coroutine[Any, Any, str]) -> str:
    """Leave the loop set, and closed, as old recipes do."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


@pytest.mark.parametrize("way", [by_run, by_runner, by_hand])
def test_a_plain_function_may_run_a_loop(
    way: Callable[[Coroutine[Any, Any, str]], str],
) -> None:
    jobs = Handlers()
    got: list[str] = []

    async def work() -> str:
        await asyncio.sleep(0)
        return tenant.get()

    @jobs.handle("a.b")
    def call(payload: dict[str, Any]) -> None:
        before = tenant.get()
        tenant.set(payload["tenant"])
        got.append(f"{before} {way(work())}")

    @jobs.handle("a.c")
    async def plain(payload: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        got.append(tenant.get())

    for name in ("acme", "corp"):
        assert run(jobs, "a.b", {"tenant": name}).outcome == "completed"
        assert run(jobs, "a.c", {}).outcome == "completed"
    assert got == ["none acme", "none", "none corp", "none"]
