"""What the pages show: their blocks of code, and the commands in them.

`<queue>` stands for what is the reader's own; `typed` puts something in its place.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.site import PAGES

ROOT = Path(__file__).parents[1]
OWN = {
    "<queue>": "mail",
    "<reason>": "gave_up",
    "$Q": "mail",
    "$NS": "jobs",
    "$RELEASE": "redrive",
}
"""What a reader puts there; for any other `<...>`, 17."""
BETWEEN = frozenset(";|&()\n")
BEFORE = frozenset({"while", "do", "if", "then", "export"})
"""Words of the shell that a command follows."""


@dataclass(frozen=True)
class Block:
    """A block of code: on which page, in which line, and in which language, if it says so."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def shell(self) -> str:
        """What is typed: after the prompts, if there are some."""
        if self.language != "console":
            return self.text
        typed = re.findall(
            r"^\$ (.*(?:\n {2,}.*|(?<=\\)\n.*)*)", self.text, re.MULTILINE
        )
        return "\n".join(typed) + "\n"


@cache
def pages() -> dict[str, str]:
    """Each page by its place."""
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for pattern in (*PAGES, "service/redrive/extras/quickstart/project/README.md")
        for path in sorted(ROOT.glob(pattern))
    }


@cache
def blocks(*languages: str) -> list[Block]:
    """The blocks of all pages in these languages."""
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[2], found[3])
        for page, text in pages().items()
        for found in re.finditer(
            r"^( *)```(\w*)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL
        )
        if found[2] in languages
    ]


def typed(text: str) -> str:
    """A shell's text without functions, with something in the place of what is the reader's own."""
    text = re.sub(r"^\w+\(\) \{ .*?; \}$", "", text, flags=re.MULTILINE | re.DOTALL)
    for name, value in OWN.items():
        text = text.replace(name, value)
    return re.sub(r"<[a-z][^<>\n]*>(\.\.\.)?", "17", text)


def commands(text: str) -> Iterator[list[str]]:
    """Each command of a shell's text, as words, without what sets variables before it."""
    text = re.sub(r"(^|\s)# .*$", "", text.replace("\\\n", " "), flags=re.MULTILINE)
    words = shlex.shlex(text, posix=True, punctuation_chars=";|&()<>\n")
    words.whitespace, words.whitespace_split, words.commenters = " \t", True, ""
    command: list[str] = []
    redirected = False
    for word in (*words, "\n"):
        if BETWEEN.issuperset(word):
            if command:
                yield command
            command, redirected = [], False
        elif not command and (word in BEFORE or re.match(r"\w+=", word)):
            continue
        elif word in {"<", ">", ">>"} or redirected:
            redirected = not redirected
        else:
            command.append(word)


def arguments(text: str) -> Iterator[list[str]]:
    """What is typed after each `redrive` of a shell's text: here, in a pod, or by the alias `r`."""
    for words in commands(text):
        program, typed = Path(words[0]).name, words[1:]
        if program == "kubectl" and "--" in words:
            typed = words[words.index("--") + 1 :]
            program = "redrive" if typed and typed[0] != "date" else ""
        if program == "r" or typed[:1] == ["redrive"]:
            typed = typed[1:]
        if program in {"redrive", "r"}:
            yield typed
