"""Help for an option that was typed before the command that has it."""

from collections.abc import Iterator, Sequence

import click


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


def refuse_before_subcommand(context: click.Context) -> None:
    """Refuse options of a group that were typed before one of its commands.

    They would be dropped silently, --database-url included. Options that a callback
    keeps for its commands are allowed.

    Raises:
        click.UsageError: the text says where the option goes.
    """
    group = context.command
    name = context.invoked_subcommand or ""
    typed = next((p for p in group.params if _is_dropped(context, p)), None)
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
    source = param.name and context.get_parameter_source(param.name)
    is_typed = source is click.core.ParameterSource.COMMANDLINE
    return is_typed and param.expose_value


def _goes_after(
    option: click.Option, name: str, context: click.Context, path: Sequence[str]
) -> click.UsageError:
    words = [context.command_path, *path, name]
    if not option.is_flag:
        value = option.metavar or option.type.name.upper()
        words.append(value)

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
        if isinstance(param, click.Option) and name in names:
            return param
    return None
