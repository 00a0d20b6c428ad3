"""Run many commands in one process of an environment that has the wheel, and nothing of ours.

Each is run by the entry point that the program has, with streams of its own. A plan comes as JSON
on stdin; a line of JSON for each call goes to stdout.
"""

import contextlib
import io
import json
import os
import pwd
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import click

from redrive import encryption
from redrive.__main__ import run
from redrive.cli.main import cli

SHELLS = ("bash", "zsh", "fish")


def call(arguments: list[str], encoding: str) -> dict[str, Any]:
    """Run a command. Returns its exit code and what it printed, also if it is a traceback."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    before = sys.stdout, sys.stderr
    sys.argv = ["redrive", *arguments]
    encryption.configured.cache_clear()  # a process reads its keys once
    code: object = 1
    sys.stdout, sys.stderr = streams
    try:
        code = run()
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:  # noqa: BLE001 # it is what the interpreter would say
        traceback.print_exc()
    finally:
        sys.stdout, sys.stderr = before
    out, err = (_bytes(stream).decode(encoding) for stream in streams)
    return {"arguments": arguments, "code": code, "out": out, "err": err}


def _bytes(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue()


def commands(
    group: click.Group = cli, typed: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command, beginning with none."""
    yield typed
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*typed, name))
        else:
            yield (*typed, name)


@contextlib.contextmanager
def surroundings(variables: Mapping[str, str | None], nobody: bool) -> Iterator[None]:
    """Set environment variables; None unsets one. `nobody` is a user without a name."""
    before, lookup = dict(os.environ), pwd.getpwuid
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    if nobody:
        pwd.getpwuid = _unknown
    try:
        yield
    finally:
        pwd.getpwuid = lookup
        os.environ.clear()
        os.environ.update(before)


def _unknown(uid: int) -> NoReturn:
    msg = f"getpwuid(): uid not found: {uid}"
    raise KeyError(msg)


def helps(encoding: str) -> Iterator[dict[str, Any]]:
    """Ask each command for its help."""
    for words in commands():
        yield call([*words, "--help"], encoding)


def completions(encoding: str) -> Iterator[dict[str, Any]]:
    """Press TAB in each shell: for the shell's own script, and after each command."""
    for shell in SHELLS:
        with surroundings({"_REDRIVE_COMPLETE": f"{shell}_source"}, nobody=False):
            yield {**call([], encoding), "arguments": [shell, "source"]}
        for words in commands():
            for begun in ("", "--"):
                typed = ["redrive", *words, begun]
                number = begun if shell == "fish" else str(len(typed) - 1)
                asked = {
                    "_REDRIVE_COMPLETE": f"{shell}_complete",
                    "COMP_WORDS": " ".join(typed),
                    "COMP_CWORD": number,
                }
                with surroundings(asked, nobody=False):
                    yield {**call([], encoding), "arguments": [shell, *typed]}


def main() -> None:
    for variant in json.load(sys.stdin):
        encoding = variant.get("encoding", "utf-8")
        if "directory" in variant:
            os.chdir(variant["directory"])
        with surroundings(variant.get("variables", {}), variant.get("nobody", False)):
            for kind, calls in variant["calls"].items():
                given = {"help": helps, "completion": completions}
                made = (
                    given[kind](encoding)
                    if kind in given
                    else (call(arguments, encoding) for arguments in calls)
                )
                for done in made:
                    print(
                        json.dumps({"variant": variant["name"], "kind": kind, **done})
                    )


if __name__ == "__main__":
    main()
