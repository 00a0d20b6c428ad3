"""What people see: one way of telling time, words in place of reprs, and no colour in a file."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest

from redrive.cli.dead_letters import show
from redrive.cli.main import cli
from redrive.cli.support import output
from redrive.cli.support.fit import fit

COMMANDS = cli.list_commands(click.Context(cli))

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "now"),
        (-1, "1 s ago"),
        (-119, "119 s ago"),
        (-120, "2 min ago"),
        (-7_199, "119 min ago"),
        (-7_200, "2 h ago"),
        (-172_800, "2 days ago"),
        (-2.254783, "2 s ago"),
        (30, "in 30 s"),
        (90_000, "in 25 h"),
    ],
)
def test_an_instant_is_told_by_its_distance(seconds: float, told: str):
    """Tables show a time as its distance from now."""
    assert output.relative(NOW + timedelta(seconds=seconds), NOW) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        ({"a": None, "é": [True]}, '{"a": null, "é": [true]}'),
        ([1, 2], "[1, 2]"),
        (NOW.astimezone(), f"{NOW.astimezone():%Y-%m-%d %H:%M:%S}"),
    ],
)
def test_no_repr_of_python_is_shown(value: Any, told: str):
    assert output.printable(value) == told


def test_an_exit_status_says_once_what_it_is():
    """`exit exit status 3`."""
    detail = {"exit": "exit status 3", "peak_memory_bytes": 52 << 20, "running": [1, 2]}
    failure = dict.fromkeys(
        ("attempt", "at", "category", "worker", "error_class", "message"), "x"
    )
    lines = list(show._failure(failure | {"detail": detail}, 0))

    assert lines[2].strip() == "exit status 3, peak memory 52 MiB, running [1, 2]"


def test_a_note_and_a_version_have_their_instant_as_everything_else():
    """2026-11-22T14:30:17.800193+00:00."""
    said = NOW.isoformat(timespec="microseconds")
    group: dict[str, Any] = dict.fromkeys(
        ("kind", "category", "error_class", "message", "first_seen", "last_seen"), "x"
    )
    group |= {
        "failing": 0,
        "open": 1,
        "total": 1,
        "group": "g",
        "sample": 1,
        "muted_until": None,
        "quarantined": 0,
        "fixed_in": None,
        "versions": {"1.0": said},
        "failure": None,
    }

    assert f"  version 1.0 since {NOW.astimezone():%Y-%m-%d %H:%M:%S}" in list(
        show._group(group)
    )


def test_what_did_not_fail_has_no_line_of_a_failure(capsys: pytest.CaptureFixture[str]):
    wide = "x" * 300
    output.table(("id", "error_class", "message"), [(1, None, None), (2, "E", wide)])
    said = capsys.readouterr().out

    assert "      : " not in said
    assert f"      E: {'x' * 50}" in said


def test_a_message_in_a_list_is_one_line_as_wide_as_the_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", "80")
    message = "the bank\nrefused " + "x" * 3000

    output.table(("id", "error_class", "message"), [(1, "E", message)])

    lines = capsys.readouterr().out.splitlines()
    assert "      E: the bank refused xx" in lines[4]
    assert max(map(len, lines)) == 80
    assert "\\n" not in lines[4]


LETTER = (
    *("id", "kind", "queue", "reason", "error_class", "message", "attempts"),
    *("died_at", "group", "owner"),
)


@pytest.mark.parametrize("owner", ["", "billing"])
def test_a_narrow_table_keeps_what_people_type_and_drops_empty_columns_first(
    owner: str,
):
    letter = (
        *("48211", "invoice.charge.monthly", "billing", "attempts_exhausted"),
        *("KeyError", "'amount'", "8", "3 min ago", "8f48f469aa01b2c3", owner),
    )
    found = fit(LETTER, [letter], 80)

    shown = {
        LETTER[i]: width for i, width in zip(found.beside, found.widths, strict=True)
    }
    for name in ("id", "kind", "reason", "group"):
        assert shown[name] == len(letter[LETTER.index(name)]), name

    assert "owner" not in shown
    assert [LETTER[i] for i in found.below] == ["error_class", "message"]
    assert ("owner" in found.left_out) == bool(owner), "an empty column is not missed"
    assert sum(found.widths) + 2 * len(found.widths) <= 80


def test_a_wide_table_shows_every_column():
    found = fit(LETTER, [["x"] * len(LETTER)], 120)

    assert found.beside == list(range(len(LETTER)))
    assert (found.below, found.left_out) == ([], [])


def test_the_first_column_names_the_row_and_stays():
    found = fit(("queue", "ready"), [["x" * 60, "1"]], 20)

    assert (found.beside, found.left_out) == ([0, 1], [])
    assert sum(found.widths) + 4 == 20


def test_a_table_says_which_columns_it_has_no_room_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", "24")
    output.table(("id", "group", "worker"), [(1, "8f48f469aa01b2c3", "pod-7")])

    assert "not shown, for lack of width: worker" in capsys.readouterr().out


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_long_line_is_broken_between_words_on_a_terminal(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
):
    if is_terminal:
        _screen(monkeypatch)

    text = output.wrapped("worker   " + "handling failed " * 8, indent=" " * 11)

    lines = text.splitlines()
    assert len(lines) == (2 if is_terminal else 1)
    if is_terminal:
        assert lines[0].endswith(("handling", "failed"))
        assert lines[1].startswith(" " * 11)


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def _screen(monkeypatch: pytest.MonkeyPatch) -> _Screen:
    """Somebody looks, at 24 lines."""
    found = _Screen()
    monkeypatch.setattr("sys.stdout", found)
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("COLUMNS", "80")
    return found


def test_a_long_name_does_not_cut_short_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """A long kind cuts neither the names of groups, which people type, nor figures."""
    monkeypatch.setenv("COLUMNS", "60")
    row = (1234, "billing." + "x" * 90, "4bcd4f0123456789")

    output.table(("open", "kind", "group"), [row])

    lines = capsys.readouterr().out.splitlines()
    assert any("1234" in line and "4bcd4f0123456789" in line for line in lines)
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize(
    ("rows", "arguments", "is_paged"),
    [(100, [], True), (5, [], False), (100, ["--no-pager"], False)],
)
def test_a_long_list_is_shown_by_the_page(
    rows: int, arguments: list[str], is_paged: bool, monkeypatch: pytest.MonkeyPatch
):
    """304 rows without a pager."""
    from redrive.cli.support.options import pager_option

    _screen(monkeypatch)
    pages: list[str] = []
    monkeypatch.setattr(click, "echo_via_pager", pages.append)

    @click.command()
    @pager_option
    def ls() -> None:
        with output.paged():
            output.table(("id",), ([n] for n in range(rows)))

    ls.main(arguments, standalone_mode=False)

    assert bool(pages) == is_paged


def test_no_color_is_heeded(monkeypatch: pytest.MonkeyPatch):
    screen = _screen(monkeypatch)
    monkeypatch.setenv("TERM", "xterm-256color")
    output.table(("id",), [[1]])
    assert "\x1b[" in screen.getvalue()
    screen.truncate(0)
    monkeypatch.setenv("NO_COLOR", "1")
    output.table(("id",), [[1]])

    assert "\x1b[" not in screen.getvalue()


def _each(command: click.Command, *path: str) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(" ".join(path), command)]
    context = click.Context(command)
    found = [] if not command.invoke_without_command else [(" ".join(path), command)]
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        found += _each(inner, *path, name)
    return found


EVERY = _each(cli)


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[path for path, _ in EVERY])
def test_help_says_when_a_why_is_required(path: str, command: click.Command):
    """A required argument is marked as required."""
    for option in command.params:
        if option.name == "why" and isinstance(option, click.Option):
            assert "[required" in (option.help or "") or "[default" in (
                option.help or ""
            ), path


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[path for path, _ in EVERY])
def test_every_command_has_an_example(path: str, command: click.Command):
    """As one would type it."""
    assert f"redrive {path}" in (command.help or "")


def test_completion_knows_the_commands():
    from click.shell_completion import ShellComplete

    known = ShellComplete(cli, {}, "redrive", "_REDRIVE_COMPLETE")

    assert {item.value for item in known.get_completions([], "")} >= set(COMMANDS)
    assert [item.value for item in known.get_completions(["worker"], "l")] == ["ls"]
    assert "--no-pager" in {
        item.value for item in known.get_completions(["dlq", "ls"], "--n")
    }
