"""What the monkey of trials/chaos and a driver of another queue say to each other.

Commands of a driver:  setup | worker SLOTS | produce
`produce` reads a line "N SECONDS" for each job, and writes N when it has been committed. What
failed is not tried again: the monkey counts what was acknowledged.
A handler notes its start, waits, and notes its end (trials/chaos/ledger.py).
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from trials.chaos.ledger import note

URL = os.environ.get("CHAOS_URL", "")
TTL = 3.0
DRAIN = 4.0

Add = Callable[[int, float], Awaitable[Any]]


async def handle(n: int, seconds: float, token: int) -> None:
    """What every handler does."""
    note("start", n, token)
    await asyncio.sleep(seconds)
    note("end", n, token)


async def produce(opener: Callable[[], Awaitable[Add]]) -> None:
    """Add what is asked for, with a new connection after an error."""
    add: Add | None = None
    while line := await asyncio.to_thread(sys.stdin.readline):
        n, seconds = line.split()
        try:
            add = add or await opener()
            await asyncio.wait_for(add(int(n), float(seconds)), 5)
        except Exception:  # noqa: BLE001 # whatever it was, this job was not acknowledged
            add = None
            await asyncio.sleep(0.1)
        else:
            print(n, flush=True)


def main(
    setup: Callable[[], Coroutine[Any, Any, None]],
    worker: Callable[[int], Coroutine[Any, Any, None]],
    opener: Callable[[], Awaitable[Add]],
) -> None:
    """Carry out the command given."""
    command, *rest = sys.argv[1:]
    if command == "setup":
        asyncio.run(setup())
    elif command == "worker":
        asyncio.run(worker(int(rest[0])))
    else:
        asyncio.run(produce(opener))
