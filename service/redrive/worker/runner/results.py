"""Results of handlers that are kept."""

import logging
from typing import Any

from redrive.errors import InvalidJob
from redrive.handlers import decode_object
from redrive.rules.payloads.limits import encode_object

MAX_RESULT_BYTES = 8_192

logger = logging.getLogger("redrive.runner")


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
        logger.warning("the result of a job is not kept: %s: %s", kind, rule)
        return None

    return decode_object(text)
