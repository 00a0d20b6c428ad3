"""Redaction: secrets are removed from stored failures, logs and screens.

Payloads are redacted by key. Texts are redacted by pattern and by known secret values.
Both compare what a reader sees, so full-width letters, look-alikes and invisible
characters change nothing.

The time is linear in the length of the text, and the searched values are bounded. A
text that would take more is hidden as a whole. Redaction is best effort: a secret
without a known name, form or value is not found. docs/failures.md describes what is
found.
"""

import contextlib
import json
import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from itertools import chain, pairwise, takewhile
from operator import eq
from typing import Any, NamedTuple, cast
from urllib.parse import quote, quote_plus

from redrive.rules.payloads import credentials as like
from redrive.rules.rows import Fields

HIDDEN = "[redacted]"
SHORTEST_SECRET = 4
"""A shorter secret value is not searched for, because it would match everywhere."""
SHORTEST_OF_ENVIRONMENT = 8
MAX_SECRETS = 256
MAX_WORK = 4_000_000
"""Limits of a search: number of values, and characters of the text times their forms.
"""
HEAD = 64
"""Length of a long secret's beginning that is searched for.

The end of the secret may have been cut off.
"""
MAX_NAME = 80

Span = tuple[int, int]

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
"""Forms of a text inside another text: as it is, in a repr, in JSON, in a URL."""

_HINTS = tuple(
    (hint, tuple(leak for leak in like.LEAKS if hint in leak.hints))
    for hint in dict.fromkeys(chain.from_iterable(leak.hints for leak in like.LEAKS))
)
_SPACED = frozenset(
    form
    for word in like.SPACED
    for form in (word, word.title(), word.upper(), word + "s")
)
_SINGULAR = {
    word + "s": word
    for word in chain(like.WORDS, like.LAST_WORDS, *map(str.split, like.PAIRS))
    if not word.endswith("s")
}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_UNSEEN = frozenset({"Cc", "Cf", "Mn", "Me"})
"""Categories of characters without an appearance of their own."""
_INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\\[xuUnrt\\]")
_CHARACTER = re.compile(
    r"\\(?:x[0-9a-f]{2}|u[0-9a-fA-F]{4}|U000[0-9a-f]{5}|[nrt\\])|.", re.DOTALL
)
_NAMED = re.compile(
    r"(?<![\w.$-])(?P<name>[\w.$-]++)(?P<quote>\\{0,6}+[\"'`]|%2[27])?\]?\s{0,8}"
    r"(?P<sign>=>|:=|==?|:(?!:)|%3(?:[aA]|[dD])|(?<!\s)\t(?=\S))(?P<space>\s{0,40}+)"
)
_VALUE = re.compile(
    # A quoted text, even if cut off; a text inside a quoted one; a text in a URL.
    rf"[bBrRuUfF]{{0,2}}(?:{like.QUOTED})"
    r"|(?P<escaped>\\+[\"'])(?:(?!(?P=escaped)).)*+(?:(?P=escaped)|\Z)"
    r"|%2[27](?:(?!%2[27])\S)*+"
    # A block of YAML: the lines that are indented like the first one.
    r"|[|>][-+\d]{0,2}[ \t]*+\r?\n(?P<indent>[ \t]++)[^\n]*+"
    r"(?:\n(?:(?P=indent)[^\n]*+|[ \t\r]*+(?=\n)))*+"
    # A call, or a type and its value in PHP; the name of a scheme and its value; a word.
    rf"|[A-Za-z_][\w.]{{0,80}}\([^()]*+(?:\)|\Z)(?: (?:{like.QUOTED}))?+"
    r"|(?:bearer|basic|digest|negotiate|token|apikey)\s{1,3}[^\s,;\"'}\])]++"
    r"|(?:[^\s,;&)}\]<>\"']|[,;)}\]\"'](?=[^\s,;&)}\]<>\"'])(?!,?[\w.-]{1,40}[=:]))++",
    re.DOTALL | re.IGNORECASE,
)
_BRACKETS = re.compile(rf"{like.QUOTED}|[\[\](){{}}]", re.DOTALL)
_PLAIN_WORD = re.compile(
    r"(?P<word>[A-Za-z][A-Za-z'-]{0,40}+)[.,:;!?]{0,3}+"
    r"(?:(?P<more> [A-Za-z])|(?=[\s)}\]\"'&,;]|\Z))"
)
_SENTENCE = re.compile(
    r"[\s\[(\"']*+[A-Z][a-z']*+(?: (?:[A-Za-z'-]+|\d+)){2,40}[.!][\s\"')\]]*+"
)
_ADDRESS = re.compile(
    r"(?:\d{1,7}|v?\d{1,9}(?:\.\d{1,9}){1,9}[\w.-]{0,40}+|latest)(?:[/:?#]|(?=[\s,;)}\]\"']|\Z))"
)


def redact(
    value: Any, declared: Collection[str] = (), secrets: Collection[str] = ()
) -> Any:
    """Return a copy of a JSON value without secret values and credentials.

    Keys in `declared` are secret as well. `secrets` are removed from every text.
    """
    if isinstance(value, Mapping):
        return _redacted(cast("Fields", value), declared, secrets)
    if isinstance(value, list):
        return [redact(item, declared, secrets) for item in cast("list[Any]", value)]
    if isinstance(value, str):
        return scrub(value, secrets)
    if isinstance(value, bool):
        return value
    if not isinstance(value, int | float | Decimal):
        return value

    # A number may be a secret, too, such as the number of a card.
    text = str(value)
    if scrub(text, secrets) == text:
        return value

    return HIDDEN


def _redacted(
    items: Fields, declared: Collection[str], secrets: Collection[str]
) -> dict[str, Any]:
    named = _values_by_name(items, declared)
    shown: dict[str, Any] = {}

    for key, item in items.items():
        is_hidden = is_secret(key, declared) or key in named
        # A key is a text of the producer, too, so it may contain a secret.
        shown[scrub(key, secrets)] = (
            HIDDEN if is_hidden else redact(item, declared, secrets)
        )

    return shown


def is_secret(key: str, declared: Collection[str] = ()) -> bool:
    """Return True if a key's value is secret by its name or a handler's option."""
    if key in declared:
        return True
    return _sounds_secret(key[-MAX_NAME:])


def secret_values(value: Any, declared: Collection[str] = ()) -> set[str]:
    """Return the secret texts in a JSON value, up to the limit of a search."""
    found: set[str] = set()
    for text in _secrets(value, declared, hidden=False):
        if len(text) >= SHORTEST_SECRET:
            # One more than the limit tells `_known` that the set is not complete.
            found.add(text)
            if len(found) > MAX_SECRETS:
                break

    return found


def secrets_of_environment(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the secret values of a process's variables, and the passwords in its URLs.

    Words and paths are left out. `postgres` may be a password, but appears in many
    messages.
    """
    found: set[str] = set()
    for name, value in environment.items():
        if is_secret(name):
            found.add(value)
        for start, end in _addressed(value):
            found.add(value[start:end])

    return frozenset(
        value
        for value in found
        if len(value) >= SHORTEST_OF_ENVIRONMENT
        and not value.isalpha()
        and not value.startswith("/")
    )


def scrub(text: str, secrets: Collection[str] = ()) -> str:
    """Return a text without credentials: known secret values and known forms."""
    spans = list(_found(text, secrets))
    # Look-alike letters and escapes may hide a secret from the patterns.
    if not text.isascii() or _INVISIBLE.search(text):
        seen = _as_seen(text)
        for start, end in _found(seen.text, secrets):
            # An empty match has no place in the original text.
            if start < end:
                spans.append(seen.original(start, end))

    if spans:
        return _without(spans, text)
    return text


def _values_by_name(items: Fields, declared: Collection[str]) -> Collection[str]:
    """Return the keys of the value in `{"name": "password", "value": "x"}`."""
    for label in ("name", "key", "header", "field"):
        name = items.get(label)
        if isinstance(name, str) and is_secret(name, declared):
            return ("value", "val", "values")

    return ()


def _secrets(value: Any, declared: Collection[str], *, hidden: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        items = cast("Fields", value)
        yield from _secret_members(items, declared, hidden=hidden)
    elif isinstance(value, list):
        elements = cast("list[Any]", value)
        for item in elements:
            yield from _secrets(item, declared, hidden=hidden)
    elif hidden and value is not None and not isinstance(value, bool):
        yield str(value)


def _secret_members(
    items: Fields, declared: Collection[str], *, hidden: bool
) -> Iterator[str]:
    named = _values_by_name(items, declared)
    for key, item in items.items():
        is_named = is_secret(key, declared) or key in named
        yield from _secrets(item, declared, hidden=hidden or is_named)


@lru_cache(4_096)
def _sounds_secret(name: str) -> bool:
    if not name.isascii() or _INVISIBLE.search(name):
        name = _as_seen(name).text

    words = [word.lower() for word in _WORD.findall(name)]
    if _is_about_one(words):
        return False

    split = _WORD.findall(name.lower())  # as in aPI_kEY
    if _are_secret(words):
        return True
    return split != words and _are_secret(split)


def _are_secret(words: list[str]) -> bool:
    if like.STEMS.search("".join(words)):
        return True

    singular = [_SINGULAR.get(word, word) for word in words]
    # A number at the end counts several of them, as in `card_2`.
    has_number = len(words) > 1 and words[-1].isdigit()
    last = singular[-2:-1] if has_number else singular[-1:]
    pairs = map(" ".join, pairwise(singular))

    return (
        not like.WORDS.isdisjoint(singular)
        or not like.LAST_WORDS.isdisjoint(last)
        or not like.PAIRS.isdisjoint(pairs)
    )


def _is_about_one(words: list[str]) -> bool:
    """Return True if a name only describes a secret, or counts tokens."""
    if len(words) <= 1:
        return False
    if words[-1] in like.DESCRIBING:
        return True

    if words[-1] != "tokens":
        return False
    return words[0] in like.COUNTING


def _found(text: str, secrets: Collection[str]) -> Iterator[Span]:
    """Yield the positions of secrets in a text, unordered; they may overlap."""
    if secrets:
        yield from _known(text, secrets)

    yield from _named(text)
    folded = text.lower()
    likely = [leaks for hint, leaks in _HINTS if hint in folded]

    # A leak may have several hints, but its pattern is tried once.
    for leak in dict.fromkeys(chain.from_iterable(likely)):
        yield from _leaked(leak, text)

    yield from _unnamed(text)


def _unnamed(text: str) -> Iterator[Span]:
    """Yield the positions of credentials that only their form gives away."""
    # Most texts have no run of characters that is long enough for a form.
    if like.LONG.search(text):
        for found in like.FORMS.finditer(text):
            yield found.span()

    for form, is_right in _CHECKED:
        for found in form.finditer(text):
            if is_right(found[0]):
                yield found.span()


def _known(text: str, secrets: Collection[str]) -> Iterator[Span]:
    """Yield the positions of these secrets in any form.

    If the search takes too long, the whole text is one position.
    """
    whole = (0, len(text))
    # The set may not be complete, so any part of the text may be secret.
    if len(secrets) > MAX_SECRETS:
        yield whole
        return

    forms = set[str]().union(*map(_forms, secrets))
    if len(forms) * len(text) > MAX_WORK:
        yield whole
        return

    for form in forms:
        yield from _places(form, text)


def _places(form: str, text: str) -> Iterator[Span]:
    head = form[:HEAD]
    start = text.find(head)

    while start >= 0:
        # The text may have been cut off inside the secret.
        part = text[start : start + len(form)]
        end = start + sum(takewhile(bool, map(eq, form, part)))
        yield (start, end)
        start = text.find(head, end)


def _forms(secret: str) -> set[str]:
    """Return the forms of a text inside another text, if it is long enough."""
    # Such a text looks the same in all writings.
    if secret.isascii() and secret.isalnum():
        if len(secret) >= SHORTEST_SECRET:
            return {secret}
        return set()

    forms: set[str] = set()
    # URL forms come last, because a lone surrogate cannot be in a URL.
    with contextlib.suppress(UnicodeEncodeError):
        for write in _WRITINGS:
            forms.add(write(secret))

    return {form for form in forms if len(form) >= SHORTEST_SECRET}


def _named(text: str) -> Iterator[Span]:
    """Yield the secret values in `name=value`, `name: value` and `name<TAB>value`."""
    # Most texts have none of the signs, and this is cheaper than the pattern.
    if not re.search(r"[:=\t]|%3", text):
        return

    quoted: set[str] = set()
    end = 0
    for found in _NAMED.finditer(text):
        name = found["name"]
        if name in _SPACED:
            name = _both_words(text, found)

        # A name inside the value before it is a part of that value.
        if found.start() < end:
            continue
        if not _gives_secret(text, found, name):
            continue

        end = _end_of_value(text, found, name)
        value = text[found.end() : end]
        if not _is_empty(value):
            yield (found.end(), end)
            if value[0] in "\"'" and len(value) > SHORTEST_SECRET:
                quoted.add(value)

    # A message says such a value again, as in "'x' is too short".
    if len(quoted) * len(text) <= MAX_WORK:
        for value in quoted:
            yield from _places(value, text)


def _gives_secret(text: str, found: re.Match[str], name: str) -> bool:
    """Return True if the name sounds secret and a value may follow."""
    if not _sounds_secret(name[-MAX_NAME:]):
        return False
    if found["sign"] not in ":\t":
        return True
    return not _is_no_value(text, found, name)


def _both_words(text: str, found: re.Match[str]) -> str:
    """Return the name together with the word before it, as in `API key: x`."""
    start = found.start()
    # The longest first word of a pair has 15 letters.
    before = text[max(0, start - 16) : start].split()
    if before and text[start - 1] == " ":
        return f"{before[-1]}_{found['name']}"

    return found["name"]


def _end_of_value(text: str, found: re.Match[str], name: str) -> int:
    start = found.end()
    first = text[start : start + 1]
    if first and first in "[{(":
        return _end_of_brackets(text, start)

    # The value of such a header may have several words.
    if first not in {'"', "'", "\\", "|", ">"} and like.REST_OF_LINE.search(
        name.lower()
    ):
        return _end_of_line(text, found)

    value = _VALUE.match(text, start)
    if value is None:
        return start
    return value.end()


def _end_of_line(text: str, found: re.Match[str]) -> int:
    """Return the end of the line, or of the quotes around name and value."""
    before = text[found.start() - 1 : found.start()]
    stops = r"\r\n"
    if before in {'"', "'"}:
        stops += before

    end = re.compile(f"[{stops}]").search(text, found.end())
    if end is None:
        return len(text)

    return end.start()


def _end_of_brackets(text: str, start: int) -> int:
    """Return the end of the bracket at `start`, or of a text that was cut off."""
    depth = 0
    for found in _BRACKETS.finditer(text, start):
        if found[0] in "[{(":
            depth += 1
        elif found[0] in "]})":
            depth -= 1

        if not depth:
            return found.end()

    return len(text)


def _is_no_value(text: str, found: re.Match[str], name: str) -> bool:
    """Return True if the text after a name and a colon is prose or an address.

    The check is short, because the same text is searched again afterwards.
    """
    start = found.end()
    if not like.REST_OF_LINE.search(name.lower()) and _is_prose(text, start):
        return True

    # An address follows its colon at once, as in token-service:8080.
    if found["quote"] or found["space"]:
        return False
    if not text[start : start + 1].isalnum():
        return False
    if text[found.start() - 1 : found.start()] == ":":  # arn:aws:secretsmanager:...
        return True

    # A short number is the secret itself then, and no port.
    has_digits = next(reversed(_WORD.findall(name)), "").lower() in like.DIGITS
    if has_digits:
        return False
    return _ADDRESS.match(text, start) is not None


def _is_prose(text: str, start: int) -> bool:
    """Return True if a word of a sentence begins here: `token: has expired`."""
    found = _PLAIN_WORD.match(text, start)
    if found is None:
        return False

    return bool(found["more"]) or found["word"].lower() in like.PROSE


def _is_empty(value: str) -> bool:
    """Return True if a value is empty, or a sentence about a missing one."""
    bare = value.strip("\\\"'.,`").lower()
    if bare in like.NOTHING:
        return True
    return _SENTENCE.fullmatch(value) is not None


def _leaked(leak: like.Leak, text: str) -> Iterator[Span]:
    has_name = "name" in leak.pattern.groupindex
    for found in leak.pattern.finditer(text):
        start, end = found.span("secret")
        if has_name and not _sounds_secret(found["name"]):
            continue
        if has_name and _is_prose(text, start):
            continue

        yield (start, end)


def _addressed(text: str) -> Iterator[Span]:
    """Yield the positions of passwords in URLs."""
    for leak in like.LEAKS:
        if "@" in leak.hints:
            yield from _leaked(leak, text)


def _is_card(text: str) -> bool:
    """Return True for a card number: a known issuer and Luhn digit (ISO/IEC 7812-1)."""
    digits = "".join(str(int(sign)) for sign in text if sign.isdigit())
    signs = set(re.sub(r"\d", "", text))

    # A card number is written with one separator throughout, or with none.
    if len(signs) > 1 or not like.ISSUERS.fullmatch(digits):
        return False

    # From the right, each second digit is doubled first.
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0


def _is_signed(text: str) -> bool:
    """Return True for a signed token, and False for other text in base64."""
    head, dot, _ = text.partition(".")
    if not dot:
        return False
    if like.SIGNED_HEAD.search(head):
        return True

    return like.SIGNED_BODY.match(text) is not None


def _is_iban(text: str) -> bool:
    """Return True if the check digits are right (ISO 7064, mod 97-10)."""
    code = "".join(filter(str.isalnum, text))
    # The country and the check digits move to the end.
    turned = code[4:] + code[:4]
    # Letters count from A = 10.
    digits = "".join(str(int(sign, 36)) for sign in turned)

    return int(digits) % 97 == 1


_CHECKED = ((like.CARD, _is_card), (like.IBAN, _is_iban), (like.SIGNED, _is_signed))
"""Forms that many other texts have, too, and what tells them apart."""


class _Seen(NamedTuple):
    """Text as a reader sees it; where each character starts and ends in the original."""

    text: str
    starts: list[int]
    ends: list[int]

    def original(self, start: int, end: int) -> Span:
        """Return the position of a part in the original text."""
        return self.starts[start], self.ends[end - 1]


def _as_seen(text: str) -> _Seen:
    """Return a text as a reader sees it.

    Characters that a repr or JSON has escaped count as the real characters.
    """
    seen: list[str] = []
    starts: list[int] = []
    ends: list[int] = []

    for found in _CHARACTER.finditer(text):
        # A character may look like several others, or like none.
        for plain in _plain(found[0]):
            seen.append(plain)
            starts.append(found.start())
            ends.append(found.end())

    return _Seen(text="".join(seen), starts=starts, ends=ends)


@lru_cache(4_096)
def _plain(character: str) -> str:
    """Return the appearance of a character, without width, accents and script.

    An invisible character is empty.
    """
    if len(character) > 1:
        character = _unescaped(character)
    # These are control characters, but a reader sees the space between two words.
    if character in "\t\r\n":
        return character

    parts = unicodedata.normalize("NFKD", character)
    shown = [part for part in parts if unicodedata.category(part) not in _UNSEEN]

    return "".join(shown).translate(like.LOOK_ALIKES)


def _unescaped(escape: str) -> str:
    """Return the character of an escape; empty if there is no such character."""
    if len(escape) == len("\\n"):
        return {"n": "\n", "r": "\r", "t": "\t"}.get(escape[1], "\\")

    number = int(escape.lstrip("\\xuU"), 16)
    if number <= sys.maxunicode:
        return chr(number)
    return ""


def _without(spans: Iterable[Span], text: str) -> str:
    """Return the text with these spans hidden; overlapping or adjacent ones are one."""
    parts: list[str] = []
    place = 0

    for start, end in sorted(spans):
        if start > place or not parts:
            parts += [text[place:start], HIDDEN]

        place = max(place, end)

    return "".join((*parts, text[place:]))
