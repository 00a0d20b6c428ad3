"""One word per thing: names in code, SQL, chart, metrics, commands and docs.

The tests check names that outlive a function's body, and headings. In the pages that
people read, they check every word. A local variable may be an `item` of a list.
docs/glossary.md has the words that are used.

Docstrings and long strings also avoid phrases that are hard to read.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from redrive.settings import Settings
from tests.commands import commands

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "service" / "redrive"
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    ROOT / "alerts" / "runbook.md",
    *sorted((ROOT / "docs").glob("*.md")),
]

NOT_USED = {
    # What others call a job, and what they do to it. Not here: `message`, the text of a failure.
    "task": "job; a recurring duty of workers is a chore",
    "entry": "dead letter",
    "item": "dead letter",
    "requeue": "redrive, retry or release",
    "reprocess": "redrive",
    "reap": "rescue",
    "reaper": "rescue",
    "sweep": "rescue",
    "sweeper": "rescue",
    "prune": "purge",
    # What we called things before the field's word won.
    "fleet": "all workers",
    "pulse": "heartbeat",
    "grace": "drain",
    "board": "shared state",
    "bury": "dead-letter",
    "endings": "settlements",
    # Names that say nothing.
    "manager": "what it does",
    "util": "what it does",
    "helper": "what it does",
}
NOT_WRITTEN = (
    "requeue",
    "reprocess",
    "sweep",
    "fleet",
    "pulse",
    "bury",
    "visibility timeout",
)
"""Words that pages avoid, too. The others have an everyday meaning as well."""

UNCLEAR = (
    "anew",
    "any more",
    "are none",
    "as far as",
    "as it may",
    "as may be",
    "as much as",
    "becomes of",
    "by which",
    "for ever",
    "go on",
    "goes on",
    "hear of",
    "hears of",
    "is none",
    "it is to",
    "of which",
    "of whom",
    "once more",
    "so few",
    "so many",
    "the ones? that",
    "theirs",
    "these that",
    "those(?! jobs)",
    "what became",
    "what becomes",
    "what is to",
    "what it is",
    "what there is",
    "whichever",
    "whoever",
    "with which",
)
"""Phrases that docstrings and long strings avoid.

They hide the subject or the object of a sentence. Name it instead.
"""
KNOWN = Path(__file__).with_name("unclear_phrases.json")
"""Files of tests and SQL that still have unclear phrases, and how many. It only shrinks."""
LONG_STRING = 40
"""Number of characters from which a string is read as a sentence."""

ALLOWED = {
    "deduplicate_items": "a parameter of Postgres' indexes",
    "_?tasks?": "asyncio's own, and the released label of redrive_maintenance_*",
    "task_id": "an argument of Celery's signals",
    "_?items?": "of a list",
    "entries": "of an index",
    "terminationGracePeriodSeconds": "Kubernetes' own",
    "_utils": "the embedded Postgres' own",
    "_reap|REAP_SECONDS": "of a process: what Unix calls it",
    "_sweep_at|_sweeping|sweep_pause|SWEEP_(COST_FACTOR|SECONDS)": "of a lane; nobody is rescued",
    "buried": "a result of rescue_v1, whose signature is released",
    "count_buried|dead_letters_buried": "a trigger: another name would need a migration",
}
"""Exceptions: a pattern for the whole name, and the reason why it may stay."""


def stem(word: str) -> str:
    """Return the part that the forms of a word have in common."""
    return re.sub(r"((?<![aeiou])y|ied|ies|e?s|ing|e?d|e)$", "", word)


STEMS = {stem(word): instead for word, instead in NOT_USED.items()}


def unwanted(names: Iterable[str]) -> dict[str, str]:
    """Return the names with a word that is not used, and the word to use instead."""
    found: dict[str, str] = {}
    for name in set(names):
        if any(re.fullmatch(pattern, name) for pattern in ALLOWED):
            continue
        parts = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
        for word in map(stem, re.findall(r"[a-z]+", parts)):
            if word in STEMS:
                found[name] = STEMS[word]
    return found


def _in_python(source: str) -> Iterator[str]:
    """Yield the names that a module, a class or a signature defines."""
    tree = ast.parse(source)
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in function.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) if id(node) not in inside:
                yield name
            case _:
                pass


def _in_sql(source: str) -> list[str]:
    return re.findall(r"[a-z_]+", re.sub(r"--.*|'[^']*'", "", source))


def _in_chart(values: dict[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield name
        if isinstance(value, dict):
            yield from _in_chart(cast("dict[str, Any]", value))


def _in_commands() -> Iterator[str]:
    for typed, command in commands():
        yield from (typed, *(parameter.name or "" for parameter in command.params))


def _elsewhere() -> Iterator[str]:
    """Yield values of the chart, settings, commands, metrics and their labels."""
    yield from _in_chart(
        yaml.safe_load((ROOT / "helm" / "redrive" / "values.yaml").read_text())
    )
    yield from Settings.model_fields
    yield from _in_commands()
    yield from re.findall(r"\w+", (ROOT / "docs" / "metrics.md").read_text())


def _headings(text: str) -> list[str]:
    return re.findall(
        r"^#+ (.*)", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE
    )


def written(text: str) -> set[str]:
    """Return the words of a page, outside of code, that are not used."""
    prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.DOTALL).lower()
    words = {stem(word) for word in re.findall(r"[a-z]+", prose)}
    return {
        word
        for word in NOT_WRITTEN
        if stem(word) in words or (" " in word and word in prose)
    }


_PHRASES = re.compile(rf"\b(?:{'|'.join(UNCLEAR)})\b")


def _texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and long strings of a module, each with its line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text), lineno=line)):
                yield line, text
            case ast.Constant(value=str(text), lineno=line) if len(text) >= LONG_STRING:
                yield line, text
            case _:
                pass


def _header(source: str) -> str:
    """Return the comments of a file of SQL as one text."""
    return " ".join(re.findall(r"^\s*-- ?(.*)", source, re.MULTILINE))


def unclear(source: str) -> list[str]:
    """Return the unclear phrases of a module, each with its line."""
    return sorted(
        {
            f"line {line}: {found[0]}"
            for line, text in _texts(source)
            for found in _PHRASES.finditer(" ".join(text.split()))
        }
    )


def test_phrases_in_docstrings_and_long_strings():
    found = {
        str(path.relative_to(PACKAGE)): phrases
        for path in sorted(PACKAGE.rglob("*.py"))
        if (phrases := unclear(path.read_text()))
    }

    assert found == {}


def test_phrases_in_tests_trials_and_sql():
    """Files that had unclear phrases may keep this number of them, and never get more."""
    found = {
        str(path.relative_to(ROOT)): len(unclear(path.read_text()))
        for folder in ("tests", "trials")
        for path in (ROOT / folder).rglob("*.py")
        if path != Path(__file__)
    } | {
        str(path.relative_to(ROOT)): len(_PHRASES.findall(_header(path.read_text())))
        for path in (ROOT / "sql").rglob("*.sql")
    }
    known = json.loads(KNOWN.read_text())

    assert {p: n for p, n in found.items() if n > known.get(p, 0)} == {}
    assert [p for p in known if not found.get(p)] == [], "take these out of the list"


def test_no_test_has_the_number_of_a_finding():
    """A reader cannot look such a number up."""
    number = re.compile(r'^\s*"""[BCMOQSU]\d{1,2}\b|def test_[a-z]\d+_', re.MULTILINE)

    for folder in ("tests", "trials"):
        for path in (ROOT / folder).rglob("*.py"):
            assert number.findall(path.read_text()) == [], path


def test_names_in_python():
    for path in PACKAGE.rglob("*.py"):
        names = [*path.relative_to(PACKAGE).parts, *_in_python(path.read_text())]
        assert unwanted(names) == {}, path


def test_names_in_sql():
    for path in (ROOT / "sql").rglob("*.sql"):
        assert unwanted([path.stem, *_in_sql(path.read_text())]) == {}, path


def test_names_in_chart_settings_commands_and_metrics():
    assert unwanted(_elsewhere()) == {}


def test_every_exception_is_needed():
    names = {*_elsewhere()}
    for path in PACKAGE.rglob("*.py"):
        names.update(_in_python(path.read_text()))
    for path in (ROOT / "sql").rglob("*.sql"):
        names.update(_in_sql(path.read_text()))

    assert [
        p for p in ALLOWED if not any(re.fullmatch(p, name) for name in names)
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_words_of_a_page(page: Path):
    assert unwanted(_headings(page.read_text())) == {}
    assert written(page.read_text()) == set()


def test_a_planted_phrase_is_found():
    docstring = 'def f():\n    """For whoever asks."""'
    long_string = 'text = "a campaign goes on with the dead letters"'
    short_string = 'word = "goes on"'

    assert unclear(docstring) == ["line 2: whoever"]
    assert unclear(long_string) == ["line 1: goes on"]
    assert unclear(short_string) == []


def test_a_planted_word_is_found():
    source = "class JobReaper:\n    def requeue(self, items): self._fleet = [board for board in items]"

    assert unwanted(_in_python(source)).keys() == {"JobReaper", "requeue", "_fleet"}
    assert unwanted(_in_sql("with requeued as (select 'a task') -- sweep")).keys() == {
        "requeued"
    }
    assert unwanted(_in_chart({"a": {"drainGrace": 1}})).keys() == {"drainGrace"}
    assert unwanted(_headings("# Tasks\n```\n# an entry\n```\n")).keys() == {"Tasks"}
    assert written("Whole fleets.\n`fleet`") == {"fleet"}
    assert written("the visibility timeout") == {"visibility timeout"}
