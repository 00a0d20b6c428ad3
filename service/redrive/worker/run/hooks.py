"""Hooks of the application, such as `on_dead` and `on_expired`.

Nothing that they do changes the end of a job.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

from redrive.handlers import Death
from redrive.handlers.function import is_async
from redrive.rules.attempts.failure import class_name
from redrive.rules.rows import Fields
from redrive.worker.run.own import warn
from redrive.worker.run.results import result_of_call
from redrive.worker.run.threads import Threads

HOOK_SECONDS = 5.0
"""Longest time of a hook."""

AT_ONCE, MOST_THREADS = 2, 16
"""Plain functions that are called at once, and their threads if some never return."""


class Hooks:
    """Calls hooks within their time limit, plain functions in threads of their own.

    `context` is what the hooks of dead letters start with: not the context of a job.
    """

    def __init__(
        self, on_dead: Callable[[Death], Any] | None, context: Context
    ) -> None:
        self._on_dead = on_dead
        self._context = context
        self._threads = Threads("hook", MOST_THREADS)
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def died(
        self, job: int, kind: str, attempt: int, reason: str, failure: Fields
    ) -> None:
        """Call the registry's `on_dead`, after the job was settled or while it is.

        `failure` is a record, as `Failure.record` makes it.
        """
        if self._on_dead is None:
            return

        death = Death(
            job,
            kind,
            attempt,
            reason,
            category=failure["category"],
            error_class=failure["error_class"],
            message=failure["message"],
            fingerprint=failure["fingerprint"],
        )

        task = asyncio.get_running_loop().create_task(
            self.call("on_dead", self._on_dead, death), context=self._context.copy()
        )
        # The event loop holds its tasks only weakly.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def call(self, name: str, hook: Callable[..., Any], *arguments: Any) -> None:
        """Call a hook for at most HOOK_SECONDS. Nothing that it raises gets out."""
        try:
            async with asyncio.timeout(HOOK_SECONDS):
                if is_async(hook):
                    returned = await hook(*arguments)
                else:
                    async with self._turn:
                        returned = await self._threads.call(hook, *arguments)
                await result_of_call(returned)
        except BaseException as error:  # noqa: BLE001 # that is the promise
            warn("%s raised", name, error_class=class_name(error))

    def close(self) -> None:
        """Let the threads end when they are done."""
        self._threads.close()
