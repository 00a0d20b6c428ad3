"""What is printed shows all of it and obeys none of it."""

import json
import logging
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.cli.support.output import emit, printable, table
from redrive.observability.logs import ConsoleFormatter, JsonFormatter
from redrive.rules.payloads.escape import escaped, escaped_lines

UNSEEN = "\N{COMBINING GRAPHEME JOINER}\N{HANGUL FILLER}\N{VARIATION SELECTOR-17}\ufe0f\uffa0"
HOSTILE = (
    "a\x00\x1b[31m\x7f\x9b2J\u202egnp.exe\u2066\u200b\u2060\ufeff\xad\u2028\U000e0041"
    + UNSEEN
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def _harmless(text: str) -> bool:
    return not any(
        unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        or character in UNSEEN
        for character in text
    )


def test_every_character_of_the_categories_is_spelled_out():
    """Of this Python's Unicode; C0, C1, bidirectional, zero-width."""
    found = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if not _harmless(escaped(chr(code)))
    ]

    assert found == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ümläut, 日本, 🚀", "plain, ümläut, 日本, 🚀"),
        ("two\nlines\tand\r", r"two\nlines\tand\r"),
        ("\x1b[31m\x9b", r"\u001b[31m\u009b"),
        ("invoice\u202efdp.exe", r"invoice\u202efdp.exe"),
        ("\U000e0041", r"\udb40\udc41"),
        ("a\\u202eb", "a\\u202eb"),
    ],
)
def test_a_text_is_shown_with_what_cannot_be_seen_in_it(text: str, shown: str):
    assert escaped(text) == shown


@given(TEXTS)
def test_json_means_the_same_and_tables_keep_to_their_lines(text: str):
    """One function for both."""
    assert json.loads(escaped(json.dumps(text, ensure_ascii=False))) == text
    assert _harmless(escaped(text))
    assert escaped_lines(text).count("\n") == text.count("\n")


def test_no_output_passes_them_on(capsys: pytest.CaptureFixture[str]):
    """`--json` let C1, bidi and zero-width through, tables and logs all but C0 and C1."""
    emit({HOSTILE: [HOSTILE]})
    table(("message",), [(HOSTILE,)])
    record = logging.LogRecord("redrive.x", 30, "", 0, "said %s", (HOSTILE,), None)
    record.kind = HOSTILE
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record.exc_info = sys.exc_info()

    printed = capsys.readouterr().out
    logged = [
        formatter.format(record) for formatter in (JsonFormatter(), ConsoleFormatter())
    ]

    assert all(map(_harmless, printed.split("\n")))
    assert all(_harmless(line) for text in logged for line in text.split("\n"))
    assert json.loads(printed.splitlines()[0]) == {HOSTILE: [HOSTILE]}
    assert json.loads(logged[0])["kind"] == HOSTILE
    assert r"\u202egnp.exe" in printable(HOSTILE)
