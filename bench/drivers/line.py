"""What a driver and the harness say to each other: one JSON object per line of standard output.

Commands of a driver:  setup | worker CONFIG | enqueue single|bulk N
                       | produce SECONDS BATCH AHEAD | load SECONDS RATE | probe N INTERVAL_MS
Events:  {"ev": "run"}                    a worker is about to start its loop
         {"ev": "first", "t"}             its first handler began
         {"ev": "n", "n"}                 handlers begun so far, every 50 ms; "pid" if a worker can
                                          have several
         {"ev": "lat", "i", "t"}          the handler of probe i began
         {"ev": "enq", "i", "t0", "t1"}   probe i was enqueued: called at t0, returned at t1
         {"ev": "enqueued", "n", "secs"}

The payload is {"i": number, "p": 1 for a probe, "s": filler}. What a handler does is CONFIG's
`work`: "" nothing, "wait:MS" waits without using the CPU, "spin:MS" uses it, "fail" raises.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

URL = os.environ["BENCH_URL"]
PROGRESS = Path(os.environ["BENCH_PROGRESS"])
FILLER = "x" * int(os.environ.get("BENCH_PAYLOAD", "0"))
TICK = 0.01

One = Callable[[dict[str, Any]], Awaitable[Any]]
Many = Callable[[list[dict[str, Any]]], Awaitable[Any]]


class _Counts:
    handled = 0
    first: float | None = None


def say(**event: Any) -> None:
    """Tell the harness."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def hit(payload: dict[str, Any]) -> None:
    """To be called first by every handler."""
    if _Counts.first is None:
        _Counts.first = time.time()
    _Counts.handled += 1
    if "p" in payload:
        say(ev="lat", i=payload["i"], t=time.time())


def work_of(config: dict[str, Any]) -> Callable[[], Awaitable[None]] | None:
    """What the handler does, None for nothing."""
    name, _, ms = config.get("work", "").partition(":")
    seconds = float(ms or 0) / 1000

    async def wait() -> None:
        await asyncio.sleep(seconds)

    async def spin() -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    async def fail() -> None:
        msg = "the downstream said no"
        raise ValueError(msg)

    return {"wait": wait, "spin": spin, "fail": fail}.get(name)


def start(config: dict[str, Any]) -> None:
    """To be called by a worker just before its loop. With `quiet` in its config it reports nothing
    more.
    """

    def pump() -> None:
        said, told_first = 0, False
        while True:
            time.sleep(0.05)
            if _Counts.first is not None and not told_first:
                say(ev="first", t=_Counts.first)
                told_first = True
            if _Counts.handled != said:
                said = _Counts.handled
                say(ev="n", n=said, t=time.time(), pid=os.getpid())

    if not config.get("quiet"):
        threading.Thread(target=pump, daemon=True).start()
    say(ev="run", t=time.time())


def payloads(start_at: int, count: int) -> list[dict[str, Any]]:
    """Payloads of jobs that are no probes."""
    return [
        {"i": i, "s": FILLER} if FILLER else {"i": i}
        for i in range(start_at, start_at + count)
    ]


def _progress() -> int:
    try:
        return int(PROGRESS.read_text() or 0)
    except (OSError, ValueError):
        return 0


async def _enqueue(one: One, many: Many, mode: str, count: int, chunk: int) -> None:
    batches = [payloads(at, min(chunk, count - at)) for at in range(0, count, chunk)]
    began = time.time()
    for batch in batches:
        if mode == "bulk":
            await many(batch)
        else:
            for payload in batch:
                await one(payload)
    say(ev="enqueued", n=count, secs=time.time() - began)


async def _produce(many: Many, seconds: float, batch: int, ahead: int) -> None:
    """As fast as the workers take them, at most `ahead` of them."""
    end, made = time.time() + seconds, 0
    while time.time() < end:
        while made - _progress() > ahead and time.time() < end:  # noqa: ASYNC110 # another process counts
            await asyncio.sleep(0.003)
        await many(payloads(made, batch))
        made += batch
    say(ev="produced", n=made)


async def _probe(one: One, i: int) -> None:
    called = time.time()
    await one({"i": i, "p": 1})
    say(ev="enq", i=i, t0=called, t1=time.time())


async def _load(one: One, many: Many, seconds: float, rate: float) -> None:
    """A steady rate, with a probe every 25 ms."""
    began, made, probes = time.time(), 0, 0
    while (elapsed := time.time() - began) < seconds:
        if due := int(elapsed * rate) - made:
            await many(payloads(made, due))
            made += due
        if elapsed * 40 >= probes:
            probes += 1
            await _probe(one, 1_000_000_000 + probes)
        await asyncio.sleep(TICK)
    say(ev="produced", n=made)


async def _probes(one: One, count: int, interval: float) -> None:
    for i in range(count):
        await _probe(one, i)
        # jitter: not in step with anybody who polls
        await asyncio.sleep(interval * (0.75 + 0.5 * (i * 7919 % 100) / 100))


def main(
    setup: Callable[[], Awaitable[None]],
    worker: Callable[[dict[str, Any]], Awaitable[None]],
    opener: Callable[[], Awaitable[tuple[One, Many]]],
    *,
    chunk: int = 5000,
    run: Callable[..., Any] = asyncio.run,
) -> None:
    """Carry out the command given."""

    async def go() -> None:
        command, *rest = sys.argv[1:]
        if command == "setup":
            await setup()
            return
        if command == "worker":
            await worker(json.loads(rest[0]))
            return
        one, many = await opener()
        if command == "enqueue":
            await _enqueue(one, many, rest[0], int(rest[1]), chunk)
        elif command == "produce":
            await _produce(many, float(rest[0]), int(rest[1]), int(rest[2]))
        elif command == "load":
            await _load(one, many, float(rest[0]), float(rest[1]))
        elif command == "probe":
            await _probes(one, int(rest[0]), float(rest[1]) / 1000)
        sys.stdout.flush()
        os._exit(0)  # not after whatever a library waits for

    run(go())
