"""What people see: one way of telling time, words in place of reprs, and no colour in a file."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest

from redrive.cli.dead_letters import show
from redrive.cli.main import COMMANDS, cli
from redrive.cli.support import output

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
        (-172_800, "2 d ago"),
        (30, "in 30 s"),
        (90_000, "in 25 h"),
    ],
)
def test_an_instant_is_told_by_its_distance(seconds: float, told: str):
    """U13: tables had bare times, dates and ISO instants with microseconds side by side."""
    assert output.relative(NOW + timedelta(seconds=seconds), NOW) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.1, "0.1 s"), (1, "1 s"), (43_200, "12 h"), (2_592_000, "30 d"), (0, "0 s")],
)
def test_a_length_of_time_is_told_in_units_of_its_size(seconds: float, told: str):
    """U13: `ended more than 1.15741e-05 days ago`."""
    assert output.length(seconds) == told


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
    """U13."""
    assert output.printable(value) == told


def test_an_exit_status_says_once_what_it_is():
    """U13: `exit exit status 3`."""
    detail = {"exit": "exit status 3", "peak_memory_bytes": 52 << 20, "running": [1, 2]}
    failure = dict.fromkeys(
        ("attempt", "at", "category", "worker", "error_class", "message"), "x"
    )
    lines = list(show._failure(failure | {"detail": detail}))

    assert lines[2].strip() == "exit status 3, peak memory 52 MiB, running [1, 2]"


def test_a_note_and_a_version_have_their_instant_as_everything_else():
    """U13: 2026-11-22T14:30:17.800193+00:00."""
    said = NOW.isoformat(timespec="microseconds")
    group: dict[str, Any] = dict.fromkeys(
        (
            "kind",
            "category",
            "error_class",
            "message",
            "open",
            "total",
            "first_seen",
            "last_seen",
        ),
        "x",
    )
    group |= {
        "group": "g",
        "sample": 1,
        "muted_until": None,
        "quarantined": 0,
        "fixed_in": None,
        "versions": {"1.0": said},
    }

    assert f"  version 1.0 since {NOW.astimezone():%Y-%m-%d %H:%M:%S}" in list(
        show._group(group)
    )


def test_what_did_not_fail_has_no_line_of_a_failure(capsys: pytest.CaptureFixture[str]):
    wide = "x" * 300
    output.table(("id", "error_class", "message"), [(1, None, None), (2, "E", wide)])
    said = capsys.readouterr().out

    assert "      : " not in said
    assert f"      E: {wide}" in said


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
    """M5: one long kind cut the names of groups, which people type, and all figures."""
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
    rows: int,
    arguments: list[str],
    is_paged: bool,
    monkeypatch: pytest.MonkeyPatch,
):
    """U13: 304 rows without a pager."""
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
    """U13: it was required and not marked so."""
    for option in command.params:
        if option.name == "why":
            assert isinstance(option, click.Option)
            assert "[required" in (option.help or "") or "[default" in (
                option.help or ""
            ), path


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[path for path, _ in EVERY])
def test_every_command_has_an_example(path: str, command: click.Command):
    """U13: as one would type it."""
    assert f"redrive {path}" in (command.help or "")


def test_completion_knows_the_commands():
    from click.shell_completion import ShellComplete

    known = ShellComplete(cli, {}, "redrive", "_REDRIVE_COMPLETE")

    assert {item.value for item in known.get_completions([], "")} >= set(COMMANDS)
    assert [item.value for item in known.get_completions(["worker"], "l")] == ["ls"]
    assert "--no-pager" in {
        item.value for item in known.get_completions(["dlq", "ls"], "--n")
    }
