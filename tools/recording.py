"""Record the demo for the README: docs/demo.svg, drawn from what a real run prints and when.

Two things move: the page, and a cover below the last line that is there already. So each line is in
the file once. What differs between machines (names, where the code is) is made the same, and waits
are made as long as it takes to read.
"""

import errno
import os
import pty
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from rich.ansi import AnsiDecoder
from rich.text import Text

from redrive.settings import Settings

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "demo.svg"
COMMAND = (sys.executable, "-m", "redrive", "demo", "--once")

COLUMNS, ROWS = 104, 30
WIDTH, HEIGHT, SIZE, MARGIN = 7.2, 17, 12, 16
"""Of a character and its line, of the type, and around the page: in pixels."""

LONGEST, READ, END = 1.0, 1.6, 6.0
"""Seconds: the longest wait within a command's output, one before each command, one at the end."""

COLOURS = {"color(1)": "#ff7b72", "color(2)": "#7ee787", "color(6)": "#79c0ff"}
"""Red, green and cyan, as Rich calls those of a terminal."""
GROUND, INK = "#0d1117", "#e6edf3"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-HJKSTfhl]")
"""All that moves a cursor; what gives colours ends in m."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the terminal, and when it was there."""

    at: float
    text: Text


def run(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[tuple[float, str]]:
    """The lines that a command prints to a terminal, each with the seconds since the first."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(command[0], command, environment)  # noqa: S606 # our own demo, as a shell would
    began, rest = time.monotonic(), ""
    while True:
        try:
            got = os.read(terminal, 65_536).decode(errors="replace")
        except OSError as error:  # Linux says so when nobody has it open any more
            if error.errno != errno.EIO:
                raise
            got = ""
        *whole, rest = (rest + got).split("\n")
        yield from ((time.monotonic() - began, line) for line in whole)
        if not got:
            break
    _, status = os.waitpid(child, 0)
    if code := os.waitstatus_to_exitcode(status):
        msg = f"the demo ended with {code}: {rest}"
        raise SystemExit(msg)


def lines(printed: Iterable[tuple[float, str]], names: Mapping[str, str]) -> Iterator[Line]:
    """What was printed as lines of the page, at the times at which they are to be shown."""
    now = last = 0.0
    decoder = AnsiDecoder()  # a style may begin on the line before
    for at, raw in printed:
        shown = CONTROL.sub("", raw.rstrip("\r")).rpartition("\r")[2]
        for ours, theirs in names.items():
            shown = shown.replace(ours, theirs)
        text = decoder.decode_line(shown)
        text.rstrip()
        if "\u2800" < text.plain[:1] < "\u28ff":  # what only moved while we waited
            continue
        now += min(at - last, LONGEST) + (READ if text.plain.startswith(("$ ", "# ")) else 0)
        last = at
        for part in text.divide(range(COLUMNS, len(text.plain), COLUMNS)) or [text]:
            yield Line(now, part)


def draw(page: Sequence[Line]) -> str:
    """The page as an SVG that moves, and begins anew after its end."""
    seconds = page[-1].at + END
    times = [*sorted({line.at for line in page}), seconds]
    shown = [sum(line.at <= at for line in page) for at in times]
    width, height = COLUMNS * WIDTH + 2 * MARGIN, ROWS * HEIGHT + 2 * MARGIN
    scroll = [-max(0, n - ROWS) * HEIGHT for n in shown]
    cover = [n * HEIGHT for n in shown]
    font = f"font: {SIZE}px ui-monospace, Menlo, Consolas, monospace"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">',
            "<title>redrive demo --once</title>",
            "<style>",
            f"text {{ {font}; white-space: pre; }}",
            ".bold { font-weight: bold; } .dim { opacity: .6; }",
            *_moves("scroll", seconds, times, scroll),
            *_moves("cover", seconds, times, cover),
            "@media (prefers-reduced-motion: reduce) { * { animation: none !important; } }",
            "</style>",
            f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>',
            f'<svg y="{MARGIN}" width="{width:g}" height="{ROWS * HEIGHT}">',
            f'<g class="scroll" fill="{INK}">',
            *(_line(n, line.text) for n, line in enumerate(page) if line.text.plain.strip()),
            f'<rect class="cover" width="100%" height="{len(page) * HEIGHT}" fill="{GROUND}"/>',
            "</g></svg></svg>\n",
        )
    )


def _moves(name: str, seconds: float, times: Sequence[float], to: Sequence[int]) -> Iterator[str]:
    """The style of what stands still, and moves, at these times. At rest it is where it ends."""
    yield f".{name} {{ transform: translateY({to[-1]}px);"
    yield f" animation: {name} {seconds:.1f}s step-end infinite; }}"
    yield f"@keyframes {name} {{"
    before = None
    for at, y in zip([0.0, *times[1:]], to, strict=True):
        if y != before:
            yield f"{100 * at / seconds:.2f}% {{ transform: translateY({y}px); }}"
        before = y
    yield "}"


def _line(n: int, text: Text) -> str:
    """A line: its columns stay where they are, whatever font there is."""
    y = n * HEIGHT + SIZE
    return "".join(_part(part, start, y) for part, start in _parts(text) if part.plain.strip())


def _parts(text: Text) -> Iterator[tuple[Text, int]]:
    """What has one style, and what stands apart, with its column."""
    places = {edge for span in text.spans for edge in (span.start, span.end)}
    places |= {found.end() for found in re.finditer(r" {2,}", text.plain)}
    start = 0
    for part in text.divide(sorted(places)):
        yield part, start
        start += len(part.plain)


def _part(part: Text, column: int, y: int) -> str:
    said = " ".join(str(span.style) for span in part.spans).split()
    plain = part.plain.rstrip()
    looks = "".join(f' fill="{COLOURS[name]}"' for name in said if name in COLOURS)
    if classes := " ".join(name for name in ("bold", "dim") if name in said):
        looks += f' class="{classes}"'
    place = f'x="{MARGIN + column * WIDTH:g}" y="{y}" textLength="{len(plain) * WIDTH:g}"'
    return f"<text {place}{looks}>{escape(plain)}</text>"


def main() -> None:
    """Record the demo."""
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LANG": "C.UTF-8"}
    me, host = Settings().who(), socket.gethostname()
    names = {
        f"{ROOT}/service/": "",
        f"{ROOT}/": "",
        me: "ada@shop".ljust(len(me)),
        f"on {host}/": "on worker-1/",
        f"pod {host},": "pod worker-1,",
    }
    page = list(lines(run(COMMAND, environment), names))
    FILE.write_text(draw(page))
    print(f"wrote {FILE.relative_to(ROOT)}: {FILE.stat().st_size // 1024} kB, {page[-1].at:.0f} s")


if __name__ == "__main__":
    main()
