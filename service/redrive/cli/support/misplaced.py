"""Errors about options in plain words: a misplaced option, or an invalid value."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

_WHOLE = (click.types.IntParamType,)
_NUMBERS = (*_WHOLE, click.types.FloatParamType)
"""Types of numbers; the ranges are their subclasses."""


def where_it_goes(
    error: click.ClickException, arguments: Sequence[str]
) -> click.ClickException:
    """Return the error, or one that shows the option in its right place.

    Values are not shown, because that of --database-url may hold a password.
    """
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error

    name = error.option_name
    names = [word.partition("=")[0] for word in arguments]
    if name not in names:
        return error

    place = names.index(name)
    has_value_already = "=" in arguments[place]
    later = arguments[place + 1 :]

    for at, path, command in _commands(error.ctx, error.ctx.command, later):
        option = _option(command, name)
        # The word after an option with a value is that value, even if it is a command's
        # name.
        if option and (at or option.is_flag or has_value_already):
            return _goes_after(option, name, error.ctx, path)

    return error


def plain(error: click.ClickException) -> click.ClickException:
    """Return the error, or one that says which numbers an option takes."""
    if not isinstance(error, click.BadParameter) or error.param is None:
        return error

    kind: Any = error.param.type
    if not isinstance(kind, _NUMBERS):
        return error

    is_option = isinstance(error.param, click.Option)
    name = error.param.opts[0] if is_option else error.param.human_readable_name
    value, _, _ = error.message.partition(" is not ")

    return click.UsageError(
        f"{name} is {value}; it must be {_numbers(kind)}", error.ctx
    )


def _numbers(kind: Any) -> str:
    """Say which numbers a type takes."""
    noun = "a whole number" if isinstance(kind, _WHOLE) else "a number"
    least, most = getattr(kind, "min", None), getattr(kind, "max", None)
    if least is not None and most is not None:
        return f"{noun} from {least} to {most}"
    if least is not None:
        is_open = getattr(kind, "min_open", False)
        return f"{noun} greater than {least}" if is_open else f"{noun}, {least} or more"

    return noun


def refuse_before_subcommand(context: click.Context) -> None:
    """Refuse options of a group that were typed before one of its commands.

    They would be dropped silently, --database-url included. Options that a callback
    keeps for its commands are allowed.

    Raises:
        click.UsageError: the text says where the option goes.
    """
    group = context.command
    name = context.invoked_subcommand or ""
    typed = next((param for param in group.params if _is_dropped(context, param)), None)
    if typed is None:
        return

    flag = typed.opts[0]
    assert isinstance(group, click.Group)  # noqa: S101 # it has this subcommand
    command = group.get_command(context, name)
    option = command and _option(command, flag)
    if option:
        raise _goes_after(option, flag, context, (name,))

    raise click.UsageError(f"{context.command_path} {name} has no option {flag}")


def _is_dropped(context: click.Context, param: click.Parameter) -> bool:
    if not param.name or not param.expose_value:
        return False

    source = context.get_parameter_source(param.name)
    return source is click.core.ParameterSource.COMMANDLINE


def _goes_after(
    option: click.Option, name: str, context: click.Context, path: Sequence[str]
) -> click.UsageError:
    words = [context.command_path, *path, name]
    if not option.is_flag:
        words.append(option.metavar or option.type.name.upper())

    whole = " ".join(words)
    return click.UsageError(f"{name} goes after the command: {whole}", context)


def _commands(
    context: click.Context, group: click.Command, words: Sequence[str]
) -> Iterator[tuple[int, tuple[str, ...], click.Command]]:
    """Yield each command that the words can name: start of its name, path, command."""
    if not isinstance(group, click.Group):
        return

    for at, word in enumerate(words):
        command = group.get_command(context, word)
        if command is None:
            continue

        # The innermost command comes first, so that it is found before its group.
        for _, path, inner in _commands(context, command, words[at + 1 :]):
            yield at, (word, *path), inner

        yield at, (word,), command


def _option(command: click.Command, name: str) -> click.Option | None:
    for param in command.params:
        names = (*param.opts, *param.secondary_opts)
        is_option = isinstance(param, click.Option)
        if is_option and name in names:
            return param

    return None
