"""The recording of the demo shows a real run of the story in docs/demo.md."""

import re
from xml.etree import ElementTree as ET

from tools.recording import (
    END,
    FILE,
    LONGEST,
    READ,
    ROOT,
    compared,
    draw,
    lines,
    outline,
)

PAGE = ROOT / "docs" / "demo.md"
SVG = "{http://www.w3.org/2000/svg}"


def test_it_shows_the_commands_of_the_demo_page_and_names_nothing_of_who_recorded_it() -> (
    None
):
    """`make recording` draws it again."""
    drawn = FILE.read_text()
    page = PAGE.read_text()
    story = page.partition("The listing below shows")[2].partition("Press Ctrl-C")[0]
    shown = "".join(ET.fromstring(drawn).itertext())
    commands = re.findall(r"^\$ redrive \w+ \w+", story, re.MULTILINE)

    assert len(commands) >= 6
    assert [command for command in commands if command not in shown] == []
    assert "All is well" in shown
    assert "schema version" not in story + shown  # a migration would outdate it
    assert FILE.stat().st_size < 300_000
    assert re.findall(r"/(?:work|home|root|Users)/", drawn) == []


def test_a_page_is_each_line_once_at_its_time() -> None:
    """Waits are cut, what moves a cursor is left out, and what XML has a use for is written out."""
    printed = [
        (0.0, "\u280b starting"),
        (0.0, "$ \x1b[36mredrive a\x1b[0m\r"),
        (90.0, "\x1b[?25l10 %\r100 % <of 2>\r"),
    ]
    page = list(lines(printed, {"redrive a": "redrive b"}))

    assert [(line.at, line.text.plain) for line in page] == [
        (READ, "$ redrive b"),
        (READ + LONGEST, "100 % <of 2>"),
    ]
    root = ET.fromstring(draw(page))
    assert [text.text for text in root.iter(f"{SVG}text")] == [
        "$",
        "redrive b",
        "100 % <of 2>",
    ]
    (style,) = root.iter(f"{SVG}style")
    assert f"animation: cover {READ + LONGEST + END:.1f}s step-end infinite" in (
        style.text or ""
    )


def test_a_recording_is_compared_by_its_commands_and_not_by_its_figures() -> None:
    """Nothing ran the tools that draw what the docs show."""

    def drawn(command: str, seconds: float) -> str:
        return draw(list(lines([(0.0, command), (seconds, f"{seconds} s")], {})))

    first = outline(drawn("$ redrive dlq show 17", 1.0))

    assert first == ["$ redrive dlq show <n>"]
    assert first == outline(drawn("$ redrive dlq show 4", 2.0))
    assert compared(FILE.read_text()) == ""
    assert "+$ redrive own <n>" in compared(drawn("$ redrive own 17", 1.0))
