"""Commands that are imported when they are used, of the core and of the extras.

A command of the core is in the table of `redrive.cli.main`. One of an extra is an entry
point of the group `redrive.commands`, so that nothing here imports an extra. Its name
is what a person types: `console`, or `job replay`.
"""

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from importlib.metadata import requires as requirements
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

HELP_COLUMNS = 80
GROUP = "redrive.commands"
PARTS = "redrive.parts"
"""Group of the functions that an option or a setting of the core needs."""

_REQUIREMENT = re.compile(r"([\w.-]+)[^;]*;\s*extra == ['\"]([\w-]+)['\"]")


@cache
def extras(group: str = GROUP) -> Mapping[str, EntryPoint]:
    """Return what the installed extras bring: name -> entry point."""
    return {point.name: point for point in entry_points(group=group)}


def part(name: str) -> Any:
    """Load a function that an extra brings.

    Raises:
        click.UsageError: the extra, or a package of it, is not installed.
    """
    return _load(extras(PARTS)[name])


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except ModuleNotFoundError as error:
        text = missing(error, point.name.split())
        if text is None:
            raise
        raise click.UsageError(text) from None


def missing(error: ModuleNotFoundError, typed: Sequence[str]) -> str | None:
    """Return what to install for the extra whose command was typed.

    None if it is no command of an extra, or if all packages of the extra are there.
    """
    points = (extras().get(" ".join(typed[:words])) for words in (2, 1))
    point = next((point for point in points if point is not None), None)
    if point is None or is_installed(point):
        return None

    what = f"{point.name} needs the package {error.name}"
    return f"{what}, which is not installed: pip install 'redrive[{point.extras[0]}]'"


def is_installed(point: EntryPoint) -> bool:
    """Return True if the packages of the entry point's extras are installed."""
    return all(_is_there(name) for extra in point.extras for name in _packages(extra))


def _packages(extra: str) -> Iterator[str]:
    """Yield the distributions of an extra, and of the extras that it names."""
    for text in requirements("redrive") or ():
        found = _REQUIREMENT.match(text)
        if found and found[2] == extra:
            yield found[1]


def _is_there(distribution: str) -> bool:
    if distribution == "redrive":  # the extra dev is made of other extras
        return True
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


class LazyGroup(click.Group):
    """Group whose commands are imported when they are used.

    Args:
        core: name -> module, which has the command under the same name.
        prefix: what is typed before the names of this group's commands, for entry
            points: "job " for `job replay`.
    """

    def __init__(
        self,
        *args: Any,
        core: Mapping[str, str] | None = None,
        prefix: str = "",
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.core = core or {}
        self.prefix = prefix

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 # of the interface
        """Return the names of the commands, extras last."""
        return [*self.core, *self.commands, *self._extras()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 # as above
        """Import a command."""
        if cmd_name in self.core:
            module = importlib.import_module(self.core[cmd_name])
            return with_help(getattr(module, cmd_name))
        if cmd_name in self.commands:
            return self.commands[cmd_name]

        point = self._extras().get(cmd_name)
        if point is None:
            return None
        try:
            return with_help(_load(point))
        except click.UsageError as error:
            return _missing(cmd_name, error)

    def _extras(self) -> Mapping[str, EntryPoint]:
        return {
            name.removeprefix(self.prefix): point
            for name, point in extras().items()
            if name.startswith(self.prefix)
            and " " not in name.removeprefix(self.prefix)
        }

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """List the commands with a line each, without importing them."""
        found = [(name, self._line(name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(found)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the name of a command, without importing any."""
        names = [
            CompletionItem(name, help=self._line(name))
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def _line(self, name: str) -> str:
        if name in self.commands:
            return self.commands[name].get_short_help_str(HELP_COLUMNS)
        if name in self.core:
            return _first_line(self.core[name], name)

        point = self._extras()[name]
        line = _first_line(point.module, point.attr)
        if is_installed(point):
            return line
        return f"{line} (needs redrive[{','.join(point.extras)}])"


def _missing(name: str, error: click.UsageError) -> click.Command:
    """Return a command that says what it needs, whatever its arguments are."""

    def refuse(**_: Any) -> NoReturn:
        raise click.UsageError(error.message)

    return click.Command(
        name,
        callback=refuse,
        help=error.message,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


def _first_line(module: str, function: str) -> str:
    text = _docstrings(module).get(function, "")
    return click.Command(None, help=text).get_short_help_str(HELP_COLUMNS)


@cache
def _docstrings(module: str) -> Mapping[str, str]:
    """Return function -> docstring, from the source: an import takes far longer."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return {}
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    return {
        node.name: ast.get_docstring(node) or ""
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def with_help(command: click.Command) -> click.Command:
    """Give a command and its subcommands their help, which -OO takes away."""
    if sys.flags.optimize > 1:
        _restore(command)
    return command


def _restore(command: click.Command) -> None:
    if command.help is None and command.callback is not None:
        function = inspect.unwrap(command.callback)
        text = _docstrings(function.__module__).get(function.__name__)
        command.help = text and inspect.cleandoc(text)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _restore(each)
