"""Hooks of the application, such as `on_dead` and `on_expired`.

Nothing that they do changes the end of a job.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from redrive.handlers import Death
from redrive.rules.attempts.failure import class_name
from redrive.rules.rows import Fields

HOOK_SECONDS = 5.0
"""Longest time of a hook."""

logger = logging.getLogger("redrive.runner")


class Hooks:
    """Calls hooks within their time limit, plain functions in threads of their own."""

    def __init__(self, on_dead: Callable[[Death], Any] | None) -> None:
        self._on_dead = on_dead
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="hook")
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
            self.call("on_dead", self._on_dead, death)
        )
        # The event loop holds its tasks only weakly.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def call(self, name: str, hook: Callable[..., Any], *arguments: Any) -> None:
        """Call a hook for at most HOOK_SECONDS. Nothing that it raises gets out."""
        try:
            async with asyncio.timeout(HOOK_SECONDS):
                if inspect.iscoroutinefunction(hook):
                    await hook(*arguments)
                else:
                    loop = asyncio.get_running_loop()
                    await loop.run_in_executor(self._threads, hook, *arguments)
        except BaseException as error:  # noqa: BLE001 # that is the promise
            logger.warning("%s raised", name, extra={"error_class": class_name(error)})

    def close(self) -> None:
        """Let the threads end when they are done."""
        self._threads.shutdown(wait=False)
