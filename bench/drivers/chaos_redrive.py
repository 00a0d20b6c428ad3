"""Redrive's producer beside those of other queues. Its worker is `redrive worker`."""

import chaos
import psycopg

from redrive import enqueue


async def _nothing(*_: object) -> None:
    """`redrive migrate` and `redrive worker` do it."""


async def opener() -> chaos.Add:
    """Enqueue one."""
    conn = await psycopg.AsyncConnection.connect(
        chaos.URL, autocommit=True, connect_timeout=5
    )

    async def add(n: int, seconds: float) -> None:
        await enqueue(conn, "chaos.async", {"n": n, "seconds": seconds})

    return add


if __name__ == "__main__":
    chaos.main(_nothing, _nothing, opener)
