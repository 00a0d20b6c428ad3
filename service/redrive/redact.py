"""Payloads as people may see them: values whose key says that they are secret are left out."""

import re
from collections.abc import Mapping
from typing import Any, cast

SECRET_KEY = re.compile(
    r"pass(word|wd|phrase|code)?$|secret|token|authori[sz]ation|api[_-]?key|private[_-]?key|credential"
    r"|card[_-]?(no|num|number)|^(pan|cvv|cvc|ssn|iban|pin)$|^(cookie|session)([_-]?id)?$",
    re.IGNORECASE,
)
HIDDEN = "[redacted]"


def redact(value: Any) -> Any:
    """A copy of a JSON value with the values of secret keys replaced, at any depth (payloads are 64 deep at most)."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: HIDDEN if SECRET_KEY.search(key) else redact(item) for key, item in items}
    if isinstance(value, list):
        return [redact(item) for item in cast("list[Any]", value)]
    return value
