"""Record the demo for the README as docs/demo.svg.

The drawing shows the output and the timing of a real run. Two things move: the page,
and a cover below the last visible line. So each line is in the file once. Text that
differs between machines, such as names and paths, is made the same. Waits last as long
as the text takes to read.
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
from difflib import unified_diff
from pathlib import Path
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from rich.ansi import AnsiDecoder
from rich.text import Text

from redrive.settings import Settings

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "demo.svg"
COMMAND = (sys.executable, "-m", "redrive", "demo", "--once")

COLUMNS, ROWS = 104, 30
WIDTH, HEIGHT, SIZE, MARGIN = 7.2, 17, 12, 16
"""Sizes in pixels: width of a character, height of a line, type size, and margin."""

LONGEST, READ, END = 1.0, 1.6, 6.0
"""Pauses in seconds.

In order: the longest wait within a command's output, the wait before each command, and
the wait at the end.
"""

COLOURS = {"color(1)": "#ff7b72", "color(2)": "#7ee787", "color(6)": "#79c0ff"}
"""Red, green and cyan, by Rich's names for terminal colours."""
SVG = "{http://www.w3.org/2000/svg}"
DIFFERS = re.compile(r"[0-9a-f]{16}|\d+")
"""Ids, groups and counts."""
SAME = 80
"""Characters of a line that are compared; where it is cut depends on the ids in it."""
GROUND, INK = "#0d1117", "#e6edf3"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-HJKSTfhl]")
"""Sequences that move the cursor; colour sequences end in m."""


@dataclass(frozen=True, slots=True)
class Line:
    """Line of the terminal, and its time of appearance."""

    at: float
    text: Text


def run(
    command: Sequence[str], environment: Mapping[str, str]
) -> Iterator[tuple[float, str]]:
    """Yield a command's terminal lines, with seconds since the first one."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(command[0], command, environment)  # noqa: S606 # our own demo, as a shell would
    began, rest = time.monotonic(), ""
    while True:
        try:
            got = os.read(terminal, 65_536).decode(errors="replace")
        except OSError as error:  # Linux raises this when the other end is closed
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


def lines(
    printed: Iterable[tuple[float, str]], names: Mapping[str, str]
) -> Iterator[Line]:
    """Yield the printed text as lines of the page, each with its time of display."""
    now = last = 0.0
    decoder = AnsiDecoder()  # a style may begin on an earlier line
    for at, raw in printed:
        shown = CONTROL.sub("", raw.rstrip("\r")).rpartition("\r")[2]
        for ours, theirs in names.items():
            shown = shown.replace(ours, theirs)
        text = decoder.decode_line(shown)
        text.rstrip()
        if "\u2800" < text.plain[:1] < "\u28ff":  # a spinner shown during a wait
            continue
        now += min(at - last, LONGEST) + (
            READ if text.plain.startswith(("$ ", "# ")) else 0
        )
        last = at
        for part in text.divide(range(COLUMNS, len(text.plain), COLUMNS)) or [text]:
            yield Line(now, part)


def draw(page: Sequence[Line]) -> str:
    """Return the page as an animated SVG that repeats."""
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
            *(
                _line(n, line.text)
                for n, line in enumerate(page)
                if line.text.plain.strip()
            ),
            f'<rect class="cover" width="100%" height="{len(page) * HEIGHT}" fill="{GROUND}"/>',
            "</g></svg></svg>\n",
        )
    )


def _moves(
    name: str, seconds: float, times: Sequence[float], to: Sequence[int]
) -> Iterator[str]:
    """Return the style of an element that jumps at these times.

    Without animation, it stays at its last position.
    """
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
    """Return a line whose columns stay in place with any font."""
    y = n * HEIGHT + SIZE
    return "".join(
        _part(part, start, y) for part, start in _parts(text) if part.plain.strip()
    )


def _parts(text: Text) -> Iterator[tuple[Text, int]]:
    """Yield each run of text with one style or behind a gap, with its column."""
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
    place = (
        f'x="{MARGIN + column * WIDTH:g}" y="{y}" textLength="{len(plain) * WIDTH:g}"'
    )
    return f"<text {place}{looks}>{escape(plain)}</text>"


def outline(drawing: str) -> list[str]:
    """Return the commands and remarks of a drawing, without what differs by run."""
    lines: dict[str, str] = {}
    drawn = ET.fromstring(drawing)  # noqa: S314 # our own
    for text in drawn.iter(f"{SVG}text"):
        y = text.get("y", "")
        lines[y] = f"{lines[y]} {text.text}" if y in lines else str(text.text)
    return [
        DIFFERS.sub("<n>", line)[:SAME]
        for line in lines.values()
        if line.startswith(("$ ", "# "))
    ]


def compared(drawing: str) -> str:
    """Compare a drawing with the one of docs; return what differs in their outlines."""
    shown, new = outline(FILE.read_text()), outline(drawing)
    return "\n".join(unified_diff(shown, new, str(FILE.name), "now", lineterm=""))


def main(arguments: Sequence[str]) -> None:
    """Record the demo. With --check, only compare the result with docs/demo.svg."""
    environment = os.environ | {
        "TERM": "xterm-256color",
        "COLUMNS": "100",
        "LANG": "C.UTF-8",
    }
    me, host = Settings().who(), socket.gethostname()
    names = {
        f"{ROOT}/service/": "",
        f"{ROOT}/": "",
        me: "ada@shop".ljust(len(me)),
        f"on {host}/": "on worker-1/",
        f"pod {host},": "pod worker-1,",
    }
    page = list(lines(run(COMMAND, environment), names))
    drawing = draw(page)
    where = FILE.relative_to(ROOT)
    if "--check" not in arguments:
        FILE.write_text(drawing)
        size = FILE.stat().st_size // 1024
        print(f"wrote {where}: {size} kB, {page[-1].at:.0f} s")
    elif difference := compared(drawing):
        msg = f"{difference}\n{where} is stale: make recording"
        raise SystemExit(msg)
    else:
        print(f"{where} shows the {len(outline(drawing))} steps of the demo")


if __name__ == "__main__":
    main(sys.argv[1:])
