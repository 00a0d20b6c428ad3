"""Messages on one line, without what libraries add to every one."""

import pytest

from redrive.rules.brief import brief, clamped


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            (
                "Client error '401 Unauthorized' for url 'https://bank/v1'\n"
                "For more information check: https://developer.mozilla.org/en-US/docs/Web/HTTP/Status/401"
            ),
            "Client error '401 Unauthorized' for url 'https://bank/v1'",
        ),
        (
            (
                "1 validation error for Invoice\namount\n  Input should be a valid integer"
                " [type=int_parsing]\n    For further information visit"
                " https://errors.pydantic.dev/2.11/v/int_parsing"
            ),
            (
                "1 validation error for Invoice amount Input should be a valid integer"
                " [type=int_parsing]"
            ),
        ),
        (
            (
                "(psycopg.errors.UniqueViolation) duplicate key\n"
                "(Background on this error at: https://sqlalche.me/e/20/gkpj)"
            ),
            "(psycopg.errors.UniqueViolation) duplicate key",
        ),
        (
            (
                "Max retries exceeded with url: /v1 (Caused by NewConnectionError("
                "'<urllib3.connection.HTTPSConnection object at 0x7f00>: Failed to establish'))"
            ),
            (
                "Max retries exceeded with url: /v1 (Caused by NewConnectionError("
                "'Failed to establish'))"
            ),
        ),
        ("one\r\n\ttwo", "one two"),
        ("", ""),
    ],
)
def test_a_message_is_one_line_without_boilerplate(message: str, shown: str) -> None:
    assert brief(message) == shown


def test_a_long_message_is_clamped() -> None:
    assert brief("x " * 3000, 10) == "x x x x x…"
    assert clamped("abc", 3) == "abc"
    assert clamped("abcd", 3) == "ab…"
