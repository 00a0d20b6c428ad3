"""Find the guards in a file of SQL, without knowledge of its meaning.

condition   one of the conditions of a WHERE, joined by AND   becomes true
branch      the condition of an IF in PL/pgSQL                becomes false
lock        FOR UPDATE and its kin                            goes
skip        SKIP LOCKED, which keeps a lock from waiting      goes
unique      of an index                                       goes
check       of a table                                        becomes true
path        SET search_path of a function                     goes
revoke      a whole statement                                 goes
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_COMMENT_OR_STRING = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", re.DOTALL)
_TOKEN = re.compile(r"'(?:[^']|'')*'|\$\w*\$|[A-Za-z_][\w$]*|\d[\w.]*|[^\s\w]")
_ENDS = {
    "group",
    "order",
    "limit",
    "offset",
    "for",
    "returning",
    "having",
    "window",
    "on",
}
_ENDS |= {"union", "except", "intersect", "do", "loop", "then", ";", "$$"}
"""Words that end a WHERE at its own depth, and ON of ON CONFLICT.

A closing parenthesis ends it too.
"""

_REFUSAL = re.compile(r"'[a-z_]+: ")
_LOCK = r"\bfor\s+(?:no\s+key\s+update|key\s+share|update|share)\b(?:\s+of\s+\w+)?"
_FUNCTION = re.compile(r"\bcreate or replace function redrive\.(\w+)")
_PATTERNS = {
    "lock": _LOCK + r"(?:\s+skip\s+locked)?",
    "skip": r"\bskip\s+locked\b",
    "unique": r"(?<=\bcreate )unique(?= index\b)",
    "path": r"\bset\s+search_path\s*=[^\n]+",
    "revoke": r"\b(?:alter\s+default\s+privileges\s+)?revoke\b[^;]+;",
}


@dataclass(frozen=True)
class Token:
    """Word or sign of SQL, and its position."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Mutant:
    """File without one of its guards."""

    file: str
    line: int
    kind: str
    guard: str
    nth: int
    """Number of the guard among equal ones in this file."""
    function: str | None
    """Function that contains the guard."""
    text: str
    """Whole text of the file without the guard."""

    @property
    def key(self) -> str:
        """Return a digest that changes when the file changes."""
        return hashlib.sha256(f"{self.file}\0{self.text}".encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """Return a name that stays the same when the guard moves within its file."""
        return f"{self.file} {self.kind}: {self.guard}" + f" #{self.nth}" * (
            self.nth > 1
        )

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.kind}: {self.guard}"


def mutants(file: str, text: str) -> list[Mutant]:
    """Return the file without each of its guards, in the order of the file."""
    code = _COMMENT_OR_STRING.sub(
        lambda f: f[0] if f[0][0] == "'" else _blank(f[0]), text
    )
    tokens = [Token(t[0].lower(), t.start(), t.end()) for t in _TOKEN.finditer(code)]
    words = _COMMENT_OR_STRING.sub(lambda f: _blank(f[0]), text)
    found = sorted(
        {
            *_conditions(tokens),
            *_branches(tokens),
            *_refusals(tokens),
            *_checks(tokens),
            *_others(words),
        }
    )
    alike = Counter[tuple[str, str]]()
    made = list[Mutant]()
    for start, end, kind, instead in found:
        guard = " ".join(text[start:end].split())
        alike[kind, guard] += 1
        made.append(
            Mutant(
                file,
                line=text.count("\n", 0, start) + 1,
                kind=kind,
                guard=guard,
                nth=alike[kind, guard],
                function=_function(code, start),
                text=text[:start] + instead + text[end:],
            )
        )
    return made


def _function(code: str, start: int) -> str | None:
    names = _FUNCTION.findall(code, 0, start)
    return names[-1] if names else None


Found = tuple[int, int, str, str]
"""Start and end in the file, kind of guard, and replacement."""


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _conditions(tokens: list[Token]) -> Iterator[Found]:
    for at, token in enumerate(tokens):
        # a FILTER limits a figure and is no guard
        if token.text != "where" or [t.text for t in tokens[max(0, at - 2) : at]] == [
            "filter",
            "(",
        ]:
            continue
        for part in _split(_until(tokens, at + 1, _ENDS)):
            if [t.text for t in part] != ["true"]:
                yield part[0].start, part[-1].end, "condition", "true"


def _branches(tokens: list[Token]) -> Iterator[Found]:
    for at, token in enumerate(tokens):
        before, after = (
            tokens[at - 1].text if at else "",
            [t.text for t in tokens[at + 1 : at + 3]],
        )
        is_clause = after == ["not", "exists"] and tokens[at + 3].text != "("
        if token.text in {"if", "elsif"} and before != "end" and not is_clause:
            part = _until(tokens, at + 1, {"then", ";"})
            if part and part[0].text != "exists":
                yield part[0].start, part[-1].end, "branch", "false"


def _refusals(tokens: list[Token]) -> Iterator[Found]:
    for at, token in enumerate(tokens):
        part = _until(tokens, at + 1, {"then", ";"}) if token.text == "when" else []
        then = tokens[at + len(part) + 1 : at + len(part) + 3]
        if (
            part
            and [t.text for t in then[:1]] == ["then"]
            and _REFUSAL.match(then[-1].text)
        ):
            yield part[0].start, part[-1].end, "refusal", "false"


def _checks(tokens: list[Token]) -> Iterator[Found]:
    for at, token in enumerate(tokens[:-1]):
        if token.text == "check" and tokens[at + 1].text == "(":
            part = _until(tokens, at + 2, set())
            yield part[0].start, part[-1].end, "check", "true"


def _others(words: str) -> Iterator[Found]:
    for kind, pattern in _PATTERNS.items():
        for found in re.finditer(pattern, words, re.IGNORECASE):
            yield found.start(), found.end(), kind, ""


def _until(tokens: list[Token], start: int, ends: set[str]) -> list[Token]:
    """Return the tokens up to the end of the clause or of its parentheses."""
    depth = cases = 0
    for at in range(start, len(tokens)):
        text = tokens[at].text
        depth += (text in "([") - (text in ")]")
        cases += (text == "case") - (text == "end")
        if depth < 0 or (depth == 0 and cases <= 0 and text in ends):
            return tokens[start:at]
    return tokens[start:]


def _split(tokens: list[Token]) -> Iterator[list[Token]]:
    """Yield the operands of AND outside of parentheses, CASE and BETWEEN."""
    part: list[Token] = []
    depth = cases = between = 0
    for token in tokens:
        depth += (token.text in "([") - (token.text in ")]")
        cases += (token.text == "case") - (token.text == "end")
        between += depth == 0 and token.text == "between"
        if token.text == "and" and depth == 0 and cases == 0:
            if not between:
                yield part
                part = []
                continue
            between -= 1
        part.append(token)
    if part:
        yield part
