"""Handlers that leave things behind, or return what has not run yet."""

import asyncio
import contextvars
import decimal
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import Future
from functools import wraps
from typing import Any

from redrive import Handlers, Job, Policy
from tests.flow.handlers import AT_ONCE, note, write

jobs = Handlers()
ONCE = Policy(max_attempts=1, timeout=30)

tenant = contextvars.ContextVar("tenant", default="nobody")
decimal.getcontext().prec = 20
sessions: dict[object, list[int]] = {}
"""Of a library that keeps one for each task."""


# ---------------------------------------------------------------------- contexts


def _change(job: Job) -> str:
    seen = f"{tenant.get()} {decimal.getcontext().prec}"
    tenant.set("acme")
    decimal.getcontext().prec = 3
    return seen


@jobs.handle("context.async", policy=ONCE)
async def context_async(payload: dict[str, Any], job: Job) -> None:
    open_in_session = sessions.setdefault(asyncio.current_task(), [])
    write(f"seen-{job.id}", f"{_change(job)} {open_in_session}")
    open_in_session.append(job.id)


@jobs.handle("context.sync", policy=ONCE)
def context_sync(payload: dict[str, Any], job: Job) -> None:
    write(f"seen-{job.id}", f"{_change(job)} []")


# ---------------------------------------------------------------------- cancellations


@jobs.handle("cancel.later", policy=ONCE)
async def cancel_later(payload: dict[str, Any], job: Job) -> None:
    """Have this task cancelled after its end."""
    note("start", job)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(0.2, task.cancel)


@jobs.handle("cancel.all", policy=ONCE)
async def cancel_all(payload: dict[str, Any], job: Job) -> None:
    """Cancel all tasks of the loop but its own."""
    note("start", job)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@jobs.handle("cancel.all-from-thread", policy=ONCE)
def cancel_all_from_thread(payload: dict[str, Any], job: Job) -> None:
    """Run on although its task is cancelled."""
    note("start", job)
    loop = jobs.loop  # type: ignore[attr-defined]
    loop.call_soon_threadsafe(lambda: [t.cancel() for t in asyncio.all_tasks(loop)])
    time.sleep(0.3)
    note("end", job)


@jobs.handle("cancel.as-it-ends", policy=ONCE)
def cancel_as_it_ends(payload: dict[str, Any], job: Job) -> None:
    """Return while the loop is to cancel its task."""
    loop = jobs.loop  # type: ignore[attr-defined]
    loop.call_soon_threadsafe(lambda: [t.cancel() for t in asyncio.all_tasks(loop)])
    note("end", job)


@jobs.handle("cancel.prepare", policy=ONCE)
async def cancel_prepare(payload: dict[str, Any], job: Job) -> None:
    jobs.loop = asyncio.get_running_loop()  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- leftovers


async def until_cancelled(name: str) -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        write(f"{name}-cancelled", "")
        raise


async def soon(name: str) -> None:
    await asyncio.sleep(0.5)
    write(name, "")


_library: dict[str, Any] = {"__name__": "pool", "soon": soon}
exec(  # code of an installed package
    compile(
        "async def serve(name): await soon(name)",
        "/usr/lib/python3/site-packages/pool/workers.py",
        "exec",
    ),
    _library,
)


@jobs.handle("leave.task", policy=ONCE)
async def leave_task(payload: dict[str, Any], job: Job) -> None:
    jobs.left = asyncio.create_task(until_cancelled("left"))  # type: ignore[attr-defined]
    jobs.kept = asyncio.create_task(  # type: ignore[attr-defined]
        soon("kept"), context=contextvars.Context()
    )
    jobs.pool = asyncio.create_task(_library["serve"]("pool"))  # type: ignore[attr-defined]
    await asyncio.sleep(0.05)


def poll() -> None:
    time.sleep(60)


@jobs.handle("leave.thread", policy=ONCE)
def leave_thread(payload: dict[str, Any], job: Job) -> None:
    threading.Thread(target=poll, daemon=True).start()


# ---------------------------------------------------------------------- what has not run


class Later:
    """An awaitable that is no coroutine."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __await__(self) -> Generator[Any, None, None]:
        yield from asyncio.sleep(0.01).__await__()
        note("end", self._job)


async def end(job: Job) -> None:
    await asyncio.sleep(0.01)
    note("end", job)


@jobs.handle("returns.awaitable", policy=ONCE)
def returns_awaitable(payload: dict[str, Any], job: Job) -> Any:
    return Later(job)


@jobs.handle("returns.coroutine", policy=ONCE)
async def returns_coroutine(payload: dict[str, Any], job: Job) -> Any:
    return end(job)


@jobs.handle("returns.task", policy=ONCE)
async def returns_task(payload: dict[str, Any], job: Job) -> Any:
    return asyncio.create_task(end(job))


@jobs.handle("returns.future", policy=ONCE)
def returns_future(payload: dict[str, Any], job: Job) -> Any:
    ended: Future[None] = Future()

    def work() -> None:
        time.sleep(0.05)
        note("end", job)
        ended.set_result(None)

    threading.Thread(target=work).start()
    return ended


class Awaiting:
    """A handler that is an object."""

    __name__ = "callable"

    async def __call__(self, _: dict[str, Any], job: Job) -> None:
        await end(job)


jobs.handle("returns.object", policy=ONCE)(Awaiting())


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hide what a function is, as decorators do."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


@jobs.handle("yields.async", policy=ONCE)
@logged
async def yields_async(payload: dict[str, Any], job: Job) -> AsyncIterator[int]:
    note("start", job)
    yield 1


@jobs.handle("yields.sync", policy=ONCE)
@logged
def yields_sync(payload: dict[str, Any], job: Job) -> Any:
    note("start", job)
    yield 1


# ---------------------------------------------------------------------- no waits

_ran = [0]


@jobs.handle("busy.turns", policy=ONCE)
async def busy_turns(payload: dict[str, Any], job: Job) -> None:
    """Write down how many jobs have run at most between two turns of the event loop."""
    write("ready", "")
    most = 0
    while _ran[0] < payload["jobs"]:
        before = _ran[0]
        await asyncio.sleep(0)
        most = max(most, _ran[0] - before)
    write("most", str(most))


@jobs.handle("busy.work", policy=ONCE)
async def busy_work(payload: dict[str, Any], job: Job) -> None:
    time.sleep(0.004)  # noqa: ASYNC251 # it computes
    _ran[0] += 1


# ---------------------------------------------------------------------- no thread


@jobs.handle("thread.refuse", policy=ONCE)
async def thread_refuse(payload: dict[str, Any], job: Job) -> None:
    """Let the system refuse the next threads, as with a limit of processes."""
    name = "_start_joinable_thread"
    if not hasattr(threading, name):  # before Python 3.13
        name = "_start_new_thread"
    start = getattr(threading, name)
    refused = 0

    def refuse(*arguments: Any, **options: Any) -> Any:
        nonlocal refused
        refused += 1
        if refused <= payload["times"]:
            raise RuntimeError("can't start new thread")
        return start(*arguments, **options)

    setattr(threading, name, refuse)


@jobs.handle("thread.work", policy=Policy(max_attempts=3, **AT_ONCE))
def thread_work(payload: dict[str, Any], job: Job) -> None:
    note("start", job)


def _count(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


@jobs.handle("thread.count", policy=ONCE)
def thread_count(payload: dict[str, Any], job: Job) -> None:
    """Write down how many threads of a name there are."""
    time.sleep(0.002)
    write(f"count-{job.id}", str(_count(payload["name"])))


# ---------------------------------------------------------------------- exceptions


class Endless(Exception):
    """Its text is never there."""

    def __str__(self) -> str:
        time.sleep(600)
        return "endless"


@jobs.handle("raises.endless", policy=ONCE)
def raises_endless(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    raise Endless


class Slow(Exception):
    """Its text takes long to make."""

    def __str__(self) -> str:
        time.sleep(20)
        return "slow"


class Classless(Exception):
    """It does not tell its class."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError


@jobs.handle("raises.slow", policy=ONCE)
async def raises_slow(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    raise Slow


@jobs.handle("raises.classless", policy=ONCE)
async def raises_classless(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    raise Classless
