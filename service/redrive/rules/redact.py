"""Secrets do not leave: not in what is stored of a failure, not in the log, not on a screen.

Payloads are redacted by key, text by pattern and by the secret values of the payload it speaks of.
"""

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast
from urllib.parse import quote, quote_plus

SECRET_KEY = re.compile(
    r"pass(?:word|wd|phrase|code)|(?:^|[_-])pass$|(?-i:[a-z]Pass$)|secret|token|authori[sz]ation|api[_-]?key"
    r"|private[_-]?key|credential|card[_-]?(?:no|num|number)|(?:^|[_-])cards?$|(?-i:[a-z]Cards?$)|cookie"
    r"|^(?:pan|cvv|cvc|ssn|iban|pin)$|^session(?:[_-]?id)?$",
    re.IGNORECASE,
)
HIDDEN = "[redacted]"
SHORTEST_SECRET = 4
"""A secret value shorter than this is not looked for in text: it would be found everywhere."""

_WORD = (
    r"pass(?:word|wd|phrase|code)|(?<![^\W_])pass(?![^\W_])"
    r"|secret|token|api[_-]?key|private[_-]?key|credentials?|cvv|cvc"
)
# A quoted text, also one that was cut off; a quoted text within a quoted one; a list; a word.
_VALUE = r"""\"(?:\\.|[^\"\\])*(?:\"|\Z)|'(?:\\.|[^'\\])*(?:'|\Z)|\\+["'][^\\]*|\[[^\]]*(?:\]|\Z)|[^\s,;&)}\]]+"""
_IN_TEXT: list[tuple[tuple[str, ...], re.Pattern[str], str]] = [
    (
        ("private key",),
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        HIDDEN,
    ),
    # what drivers add to their messages: the values of the row, the statement, its parameters
    (
        ("detail: ",),
        re.compile(r"^DETAIL: .*?(?=^[A-Z]{1,20}: |^\[|\Z)", re.DOTALL | re.MULTILINE),
        f"DETAIL: {HIDDEN}\n",
    ),
    (
        ("[sql: ", "[parameters: "),
        re.compile(r"^\[(SQL|parameters): .*\Z", re.DOTALL | re.MULTILINE),
        rf"[\1: {HIDDEN}]",
    ),
    (
        ("@",),
        re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,200}:)[^\s\"']{1,500}@", re.IGNORECASE),
        rf"\1{HIDDEN}@",
    ),
    (
        ("authori", "cookie"),
        re.compile(
            r"(\b(?:authori[sz]ation|cookie)[\"']?\s{0,3}[:=]\s{0,3}[\"']?)[^\r\n\"']+",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (
        ("bearer", "basic", "digest"),
        re.compile(r"\b(bearer|basic|digest)\s+[\w.~+/=-]{8,}", re.IGNORECASE),
        rf"\1 {HIDDEN}",
    ),
    (("eyj",), re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), HIDDEN),
    (
        ("_live_", "_test_", "akia"),
        re.compile(r"\b(?:sk|pk|rk)_(?:live|test)_\w{8,}|\bAKIA[A-Z0-9]{12,}"),
        HIDDEN,
    ),
    (("gh", "xox"), re.compile(r"\bgh[pousr]_\w{20,}|\bxox[baprs]-[\w-]{10,}"), HIDDEN),
    (
        ("pass", "secret", "token", "key", "credential", "cvv", "cvc"),
        re.compile(
            rf"""(["']?\b[\w-]{{0,40}}(?:{_WORD})[\w-]{{0,40}}\\{{0,3}}["']?\s{{0,3}}[:=]\s{{0,3}})({_VALUE})""",
            re.IGNORECASE | re.DOTALL,
        ),
        rf"\1{HIDDEN}",
    ),
]
"""What a text must hold one of, in lower case, for the pattern to be worth a try; the pattern; its
stand-in.
"""
_CARD = re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])")  # not within a UUID


def redact(value: Any, declared: Collection[str] = (), secrets: Collection[str] = ()) -> Any:
    """A copy of a JSON value with the values of secret keys replaced, and credentials within its
    texts.

    `declared` keys are secret as well, and so are `secrets`, wherever they stand in a text.
    """
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {
            key: HIDDEN if is_secret(key, declared) else redact(item, declared, secrets)
            for key, item in items
        }
    if isinstance(value, list):
        return [redact(item, declared, secrets) for item in cast("list[Any]", value)]
    return scrub(value, secrets) if isinstance(value, str) else value


def is_secret(key: str, declared: Collection[str] = ()) -> bool:
    """Whether a key's value is secret, by its name or because the handler says so."""
    return key in declared or SECRET_KEY.search(key) is not None


def secret_values(value: Any, declared: Collection[str] = ()) -> set[str]:
    """The texts in a JSON value that must not turn up anywhere else."""
    return {
        text for text in _secrets(value, declared, hidden=False) if len(text) >= SHORTEST_SECRET
    }


def scrub(text: str, secrets: Collection[str] = ()) -> str:
    """Text without credentials: known secret values, and whatever looks like one."""
    for form in sorted(
        {form for secret in secrets for form in _forms(secret)}, key=len, reverse=True
    ):
        text = text.replace(form, HIDDEN)
    folded = text.lower()
    is_ascii = text.isascii()  # elsewhere a letter can match one that it is not the lower case of
    for needles, pattern, stand_in in _IN_TEXT:
        if not is_ascii or any(needle in folded for needle in needles):
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


def _forms(secret: str) -> set[str]:
    """The ways in which a text can stand in another one: as it is, within repr, JSON or a URL."""
    forms = {
        secret,
        secret.encode("unicode_escape").decode(),
        *(repr(q + secret)[2:-1] for q in ("'", '"', "")),
    }
    for as_ascii in (True, False):
        forms.add(json.dumps(secret, ensure_ascii=as_ascii)[1:-1])
    with contextlib.suppress(UnicodeEncodeError):  # a lone surrogate has no place in a URL
        forms |= {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    return {form for form in forms if len(form) >= SHORTEST_SECRET}


def _hide_card(found: re.Match[str]) -> str:
    """A run of 13 to 19 digits is a card number if its check digit says so (Luhn, ISO/IEC 7812-1)."""
    digits = [int(c) for c in found[0] if c.isdigit()]
    doubled = (d if n % 2 == 0 else sum(divmod(2 * d, 10)) for n, d in enumerate(reversed(digits)))
    return HIDDEN if sum(doubled) % 10 == 0 else found[0]
