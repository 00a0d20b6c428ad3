"""Secrets do not leave: not in what is stored of a failure, not in the log, not on a screen.

Payloads are redacted by key, text by pattern and by the secret values of the payload it speaks of.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

SECRET_KEY = re.compile(
    r"pass(word|wd|phrase|code)?$|secret|token|authori[sz]ation|api[_-]?key|private[_-]?key|credential"
    r"|card[_-]?(no|num|number)|^(pan|cvv|cvc|ssn|iban|pin)$|^(cookie|session)([_-]?id)?$",
    re.IGNORECASE,
)
HIDDEN = "[redacted]"
SHORTEST_SECRET = 4
"""A secret value shorter than this is not looked for in text: it would be found everywhere."""

_WORD = r"pass(?:word|wd|phrase|code)?|secret|token|authori[sz]ation|api[_-]?key|private[_-]?key|credentials?|cvv|cvc"
_IN_TEXT: list[tuple[re.Pattern[str], str]] = [
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
    (re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,200}:)[^\s@/]{1,500}@", re.IGNORECASE), rf"\1{HIDDEN}@"),
    (re.compile(r"\b(bearer|basic|digest)\s+[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), HIDDEN),
    (re.compile(r"\b(?:sk|pk|rk)_(?:live|test)_\w{8,}|\bAKIA[A-Z0-9]{12,}"), HIDDEN),
    (re.compile(r"\bgh[pousr]_\w{20,}|\bxox[baprs]-[\w-]{10,}"), HIDDEN),
    (re.compile(rf"""(["']?\b[\w-]{{0,40}}(?:{_WORD})[\w-]{{0,40}}["']?\s{{0,3}}[:=]\s{{0,3}})("[^"]*"|'[^']*'|[^\s,;&)}}\]]+)""",
                re.IGNORECASE), rf"\1{HIDDEN}"),
]  # fmt: skip
_CARD = re.compile(r"\b\d(?:[ -]?\d){12,18}\b")


def redact(value: Any, declared: Collection[str] = ()) -> Any:
    """A copy of a JSON value with the values of secret keys replaced; `declared` keys are secret as well."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: HIDDEN if is_secret(key, declared) else redact(item, declared) for key, item in items}
    if isinstance(value, list):
        return [redact(item, declared) for item in cast("list[Any]", value)]
    return value


def is_secret(key: str, declared: Collection[str] = ()) -> bool:
    """Whether a key's value is secret, by its name or because the handler says so."""
    return key in declared or SECRET_KEY.search(key) is not None


def secret_values(value: Any, declared: Collection[str] = ()) -> set[str]:
    """The texts in a JSON value that must not turn up anywhere else."""
    return {text for text in _secrets(value, declared, hidden=False) if len(text) >= SHORTEST_SECRET}


def scrub(text: str, secrets: Collection[str] = ()) -> str:
    """Text without credentials: known secret values, and whatever looks like one."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for pattern, stand_in in _IN_TEXT:
        text = pattern.sub(stand_in, text)
    return _CARD.sub(_hide_card, text)


def _secrets(value: Any, declared: Collection[str], *, hidden: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield from _secrets(item, declared, hidden=hidden or is_secret(key, declared))
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _secrets(item, declared, hidden=hidden)
    elif hidden and value is not None and not isinstance(value, bool):
        yield str(value)


def _hide_card(found: re.Match[str]) -> str:
    """A run of 13 to 19 digits is a card number if its check digit says so (Luhn, ISO/IEC 7812-1)."""
    digits = [int(c) for c in found[0] if c.isdigit()]
    doubled = (d if n % 2 == 0 else sum(divmod(2 * d, 10)) for n, d in enumerate(reversed(digits)))
    return HIDDEN if sum(doubled) % 10 == 0 else found[0]
