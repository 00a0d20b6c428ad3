"""Threads for plain functions."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from redrive.worker.run.children import end_if_child


class NoThread(Exception):
    """The system has no thread to give."""


_Outcome = tuple[Any, BaseException | None]
"""Value and error of a call: no future can carry StopIteration."""


@dataclass(slots=True, eq=False)
class _Call:
    """A function to call. `ended` gets its outcome, in the thread of `loop`.

    `outcome` keeps it even if the wait was cancelled.
    """

    loop: asyncio.AbstractEventLoop
    ended: "asyncio.Future[_Outcome]"
    context: contextvars.Context
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    outcome: _Outcome | None = None


class Threads:
    """Threads of one runner, used again and again, at most `most` of them.

    A thread gets its work once it runs. So work never waits for a thread that the
    system refuses to start. All methods belong to one event loop.
    """

    def __init__(self, name: str, most: float = float("inf")) -> None:
        self._name = name
        self._most = most
        self._started = 0
        # A thread that ends a call takes the next one without a sleep.
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = 0
        self._is_closed = False

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a thread, in a copy of this task's context.

        A cancellation ends the wait, but not the thread.

        Raises:
            NoThread: the function was not called, and never will be.
        """
        return _value(await self._begin(function, arguments).ended)

    async def call_to_end(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function like `call`, but wait for its end in any case."""
        call = self._begin(function, arguments)
        # If the wait is cancelled, wait anew: no thread can be cancelled. The call may
        # end between the cancellation and the next turn of this task.
        while (outcome := call.outcome) is None:
            if call.ended.cancelled():
                call.ended = call.loop.create_future()
            with contextlib.suppress(asyncio.CancelledError):
                await call.ended

        return _value(outcome)

    def _begin(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> _Call:
        if self._idle:
            self._idle -= 1
        else:
            self._start()

        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        call = _Call(loop, loop.create_future(), context, function, arguments)
        self._queue.put(call)

        return call

    def _start(self) -> None:
        if self._started >= self._most:
            msg = f"{self._started} threads are busy"
            raise NoThread(msg)

        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            raise NoThread(str(error)) from None

        self._started += 1

    def _work(self) -> None:
        """Call one function after the other, in a thread."""
        while (call := self._queue.get()) is not None:
            value, error = None, None
            try:
                value = call.context.run(call.function, *call.arguments)
            except BaseException as raised:  # noqa: BLE001 # raised again by `call`
                error = raised

            # The function may have forked: this is a thread of the child then.
            end_if_child(error)
            call.loop.call_soon_threadsafe(self._ended, call, (value, error))
            # While it waits, a thread must keep nothing of its last job.
            del call, value, error

    def _ended(self, call: _Call, outcome: _Outcome) -> None:
        if self._is_closed:
            self._queue.put(None)
        else:
            self._idle += 1
        call.outcome = outcome
        if not call.ended.done():
            call.ended.set_result(outcome)

    def close(self) -> None:
        """Let the threads end when they are done."""
        self._is_closed = True
        for _ in range(self._idle):
            self._queue.put(None)


def _value(outcome: _Outcome) -> Any:
    value, error = outcome
    if error is not None:
        raise error
    return value
