"""temporalio/sdk-python #1648.

A cancellation comes as a plain function returns. The thread works on, the outcome is
known, and the next function gets a thread.
"""

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest

from redrive.worker.run.threads import Threads


@pytest.mark.parametrize("at", ["with the end", "before", "between"])
def test_a_function_whose_wait_is_cancelled_has_its_outcome(at: str) -> None:
    async def run() -> list[int]:
        loop = asyncio.get_running_loop()
        threads = Threads("test", most=1)
        tasks: list[asyncio.Task[Any]] = []

        def function(n: int) -> int:
            if at == "with the end":
                loop.call_soon_threadsafe(tasks[-1].cancel)
            elif at == "between":
                time.sleep(0.001)
            return n

        found: list[int] = []
        for n in range(50):
            tasks.append(asyncio.create_task(threads.call_to_end(function, n)))
            if at == "before":
                loop.call_soon(tasks[-1].cancel)
            elif at == "between":
                loop.call_later(0.001, tasks[-1].cancel)
            with contextlib.suppress(asyncio.CancelledError):
                async with asyncio.timeout(10):
                    found.append(await tasks[-1])

        threads.close()
        return found

    before = threading.active_count()
    found = asyncio.run(run())
    if at != "before":  # then the task has not begun
        assert found == list(range(50))
    assert threading.active_count() <= before + 1
