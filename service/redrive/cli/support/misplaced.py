"""Errors about options in plain words: a misplaced option, or an invalid value."""

from typing import Any

import click

_WHOLE = (click.types.IntParamType,)
_NUMBERS = (*_WHOLE, click.types.FloatParamType)
"""Types of numbers; the ranges are their subclasses."""


def where_it_goes(error: click.ClickException) -> click.ClickException:
    """Return the error, or one that says where an option goes that a group does not know.

    Values are not shown, because that of --database-url may hold a password.
    """
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error

    group = error.ctx.command
    if not isinstance(group, click.Group) or group.invoke_without_command:
        return error

    path, option = error.ctx.command_path, error.option_name
    rule = f"options go after the command: {path} COMMAND {option}"
    return click.UsageError(f"{path} has no option {option}; {rule}", error.ctx)


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
    name = context.invoked_subcommand
    for param in context.command.params:
        if _is_dropped(context, param):
            path = f"{context.command_path} {name}"
            raise click.UsageError(
                f"{param.opts[0]} is before {name}; options of {path} go after it"
            )


def _is_dropped(context: click.Context, param: click.Parameter) -> bool:
    if not param.name or not param.expose_value:
        return False

    source = context.get_parameter_source(param.name)
    return source is click.core.ParameterSource.COMMANDLINE
