"""Secrets do not leave: not in what is stored of a failure, not in the log, not on a screen.

Payloads are redacted by key, text by pattern and by the secret values of the payload it speaks of.
"""

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import quote, quote_plus

_SECRET_KEYS = (
    r"pass(?:word|wd|phrase|code)",
    r"(?:^|[_-])pass$",
    r"(?-i:[a-z]Pass$)",
    r"secret|token|credential|cookie",
    r"authori[sz]ation",
    r"(?:api|private)[_-]?key",
    r"card[_-]?(?:no|num|number)",
    r"(?:^|[_-])cards?$",
    r"(?-i:[a-z]Cards?$)",
    r"^(?:pan|cvv|cvc|ssn|iban|pin)$",
    r"^session(?:[_-]?id)?$",
)
SECRET_KEY = re.compile("|".join(_SECRET_KEYS), re.IGNORECASE)
"""What the key of a secret value looks like."""

HIDDEN = "[redacted]"
SHORTEST_SECRET = 4
"""A secret value shorter than this is not looked for in text: it would be found everywhere."""

_WORD = (
    r"pass(?:word|wd|phrase|code)|(?<![^\W_])pass(?![^\W_])"
    r"|secret|token|api[_-]?key|private[_-]?key|credentials?|cvv|cvc"
)
_VALUES = (
    # a quoted text, even one that was cut off
    r"""\"(?:\\.|[^\"\\])*(?:\"|\Z)|'(?:\\.|[^'\\])*(?:'|\Z)""",
    # a quoted text within a quoted one
    r"""\\+["'][^\\]*""",
    # a list
    r"""\[[^\]]*(?:\]|\Z)""",
    # a word
    r"""[^\s,;&)}\]]+""",
)
_VALUE = "|".join(_VALUES)


class _Leak(NamedTuple):
    """What a credential in a text looks like.

    `hints`: the text must hold one of them, in lower case, for the pattern to be worth a try.
    """

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: str


_LEAKS = (
    _Leak(
        hints=("private key",),
        pattern=re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        replacement=HIDDEN,
    ),
    # what drivers add to their messages: the values of the row, the statement, its parameters
    _Leak(
        hints=("detail: ",),
        pattern=re.compile(r"^DETAIL: .*?(?=^[A-Z]{1,20}: |^\[|\Z)", re.DOTALL | re.MULTILINE),
        replacement=f"DETAIL: {HIDDEN}\n",
    ),
    _Leak(
        hints=("[sql: ", "[parameters: "),
        pattern=re.compile(r"^\[(SQL|parameters): .*\Z", re.DOTALL | re.MULTILINE),
        replacement=rf"[\1: {HIDDEN}]",
    ),
    # the password of a URL
    _Leak(
        hints=("@",),
        pattern=re.compile(
            r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,200}:)[^\s\"']{1,500}@", re.IGNORECASE
        ),
        replacement=rf"\1{HIDDEN}@",
    ),
    # headers
    _Leak(
        hints=("authori", "cookie"),
        pattern=re.compile(
            r"(\b(?:authori[sz]ation|cookie)[\"']?\s{0,3}[:=]\s{0,3}[\"']?)[^\r\n\"']+",
            re.IGNORECASE,
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    _Leak(
        hints=("bearer", "basic", "digest"),
        pattern=re.compile(r"\b(bearer|basic|digest)\s+[\w.~+/=-]{8,}", re.IGNORECASE),
        replacement=rf"\1 {HIDDEN}",
    ),
    # tokens that are known by their form: JWT, Stripe, AWS, GitHub, Slack
    _Leak(
        hints=("eyj",),
        pattern=re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
        replacement=HIDDEN,
    ),
    _Leak(
        hints=("_live_", "_test_", "akia"),
        pattern=re.compile(r"\b(?:sk|pk|rk)_(?:live|test)_\w{8,}|\bAKIA[A-Z0-9]{12,}"),
        replacement=HIDDEN,
    ),
    _Leak(
        hints=("gh", "xox"),
        pattern=re.compile(r"\bgh[pousr]_\w{20,}|\bxox[baprs]-[\w-]{10,}"),
        replacement=HIDDEN,
    ),
    # name=value and name: value
    _Leak(
        hints=("pass", "secret", "token", "key", "credential", "cvv", "cvc"),
        pattern=re.compile(
            rf"""(["']?\b[\w-]{{0,40}}(?:{_WORD})[\w-]{{0,40}}\\{{0,3}}["']?\s{{0,3}}[:=]\s{{0,3}})"""
            rf"({_VALUE})",
            re.IGNORECASE | re.DOTALL,
        ),
        replacement=rf"\1{HIDDEN}",
    ),
)
_WRITINGS: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    lambda text: text.encode("unicode_escape").decode(),
    lambda text: repr("'" + text)[2:-1],
    lambda text: repr('"' + text)[2:-1],
    lambda text: repr(text)[1:-1],
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: quote(text, safe=""),
    quote,
    quote_plus,
)
"""The ways in which a text can stand in another one: as it is, in a repr, in JSON, in a URL."""

_CARD = re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])")  # not within a UUID


def redact(value: Any, declared: Collection[str] = (), secrets: Collection[str] = ()) -> Any:
    """A copy of a JSON value without the values of secret keys and credentials in its texts.

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
    text = _without(secrets, text)
    folded = text.lower()
    is_ascii = text.isascii()  # elsewhere a letter can match one that it is not the lower case of
    for leak in _LEAKS:
        if not is_ascii or any(hint in folded for hint in leak.hints):
            text = leak.pattern.sub(leak.replacement, text)
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


def _without(secrets: Collection[str], text: str) -> str:
    """The text without these, in whatever form; a longer one may contain a shorter one."""
    forms = {form for secret in secrets for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return text


def _forms(secret: str) -> set[str]:
    """What a text can look like in another one, where that is long enough to be looked for."""
    if secret.isascii() and secret.isalnum():
        return {secret} if len(secret) >= SHORTEST_SECRET else set()
    forms: set[str] = set()
    # A lone surrogate has no place in a URL; those forms come last.
    with contextlib.suppress(UnicodeEncodeError):
        for write in _WRITINGS:
            forms.add(write(secret))
    return {form for form in forms if len(form) >= SHORTEST_SECRET}


def _hide_card(found: re.Match[str]) -> str:
    """Hide 13 to 19 digits if the check digit makes them a card number (Luhn, ISO/IEC 7812-1)."""
    digits = [int(c) for c in found[0] if c.isdigit()]
    doubled = (d if n % 2 == 0 else sum(divmod(2 * d, 10)) for n, d in enumerate(reversed(digits)))
    return HIDDEN if sum(doubled) % 10 == 0 else found[0]
