"""Results of handlers: what is still to run in them, and what is kept of them."""

import asyncio
import inspect
from concurrent.futures import Future
from types import AsyncGeneratorType, GeneratorType
from typing import Any, cast

from redrive.errors import InvalidJob
from redrive.handlers import decode_object
from redrive.rules.payloads.limits import encode_object
from redrive.worker.run.own import warn

MAX_RESULT_BYTES = 8_192


async def result_of_call(returned: Any) -> Any:
    """Return the result of a function, once all that it has returned has run.

    Raises:
        TypeError: it returned a generator, whose code nobody runs.
    """
    while returned is not None:
        if isinstance(returned, Future):
            returned = await asyncio.wrap_future(cast("Future[Any]", returned))
        elif inspect.isawaitable(returned):
            returned = await returned
        elif isinstance(returned, GeneratorType | AsyncGeneratorType):
            msg = (
                "the function returned a generator, so its code did not run;"
                " write it without `yield`"
            )
            raise TypeError(msg)
        else:
            break

    return returned


def result_of(kind: str, returned: Any) -> dict[str, Any] | None:
    """Return what a handler returned as a JSON object; None if that is impossible.

    The work is done all the same.
    """
    try:
        dump = getattr(returned, "model_dump", None)
        value = returned if dump is None else dump(mode="json")
        text = encode_object("result", {"value": value}, MAX_RESULT_BYTES)
    except Exception as error:  # noqa: BLE001 # of whatever class the application returns
        # The value may be secret, and so may the text of an error about it.
        rule = error.rule if isinstance(error, InvalidJob) else "cannot be encoded"
        warn("the result of a job is not kept: %s: %s", kind, rule)
        return None

    return decode_object(text)
