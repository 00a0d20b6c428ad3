"""Calls of plain functions in threads."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any


async def call_in_thread(
    threads: Executor, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> Any:
    """Call a function in a thread, with the context variables of this task."""
    context = contextvars.copy_context()
    returned, error = await asyncio.get_running_loop().run_in_executor(
        threads,
        lambda: context.run(_call, function, arguments),
    )
    if error is not None:
        raise error
    if asyncio.iscoroutine(returned):
        # a plain function that returned what an async one would
        return await returned

    return returned


def _call(
    function: Any, arguments: tuple[Any, ...]
) -> tuple[Any, BaseException | None]:
    """Return a function's value and its error: a Future cannot carry StopIteration."""
    try:
        return function(*arguments), None
    except BaseException as error:  # noqa: BLE001 # raised again where the attempt is judged
        return None, error
