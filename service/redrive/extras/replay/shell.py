"""What `redrive job replay` does: read a dead letter, run it, and tell what happened."""

import contextlib
import sys
from pathlib import Path

import click

from redrive.cli.support.bundle import read_bundle_of
from redrive.cli.support.exits import Exit
from redrive.cli.support.options import Reveal
from redrive.cli.support.output import answer, printable, wants_json
from redrive.errors import RedriveError, SettingsError
from redrive.extras.replay.bundle import Bundle, bundle_of, read_bundle, with_payload
from redrive.extras.replay.process import CannotConfine
from redrive.extras.replay.replay import Replayed, replay_confined, replay_here
from redrive.extras.replay.report import facts, lines
from redrive.extras.replay.scene import Request
from redrive.settings import Settings


def bundle(
    job: int | None,
    file: Path | None,
    payload: Path | None,
    reveal: Reveal | None,
    settings: Settings,
) -> Bundle:
    """Read a dead letter from a file or the database, and its payload from another file."""
    if file is not None:
        found = _from_file(job, file, reveal)
    elif job is not None:
        found = bundle_of(read_bundle_of(job, reveal, settings))
    else:
        raise click.UsageError("give the id of a job, or --bundle FILE")

    return found if payload is None else with_payload(found, payload)


def _from_file(job: int | None, file: Path, reveal: Reveal | None) -> Bundle:
    if reveal is not None:
        raise click.UsageError("--reveal is for a job in the database, not a bundle")

    try:
        found = read_bundle(file.read_bytes(), f"--bundle {file}")
    except OSError as error:
        msg = f"--bundle {file}: {error.strerror}"
        raise SettingsError(msg) from None

    if job not in {None, found.id}:
        raise click.UsageError(f"the bundle is of job {found.id}, not {job}")

    return found


def test_file(name: str | None, of: Bundle) -> Path:
    """Return the file of the test.

    Args:
        name: what the user calls it; None: after the job.

    Raises:
        SettingsError: there is such a file, or the bundle was exported with --reveal.
    """
    if not of.redacted:
        msg = (
            f"--pytest: the bundle of job {of.id} has secrets, and a test must not;"
            " export it again without --reveal"
        )
        raise SettingsError(msg)

    file = Path(name or f"test_job_{of.id}.py")
    if file.exists() or file.is_symlink():
        msg = f"--pytest: {file} exists; name another file, or remove it"
        raise SettingsError(msg)

    return file


def replay(request: Request, test: Path | None, *, is_confined: bool) -> int:
    """Run the attempt, tell how it ended, and write its test if there is one."""
    found = _confined(request) if is_confined else _here(request)

    is_written = test is not None and _write_test(test, found)
    report = facts(request.bundle, found)
    report["test"] = str(test) if is_written else None
    answer(report, "\n".join(lines(request.bundle, found)))

    if test is not None:
        return _say_test(test, is_written=is_written)

    result = found.result
    if result is None or result.failure is not None:
        return Exit.FAILED

    return Exit.DONE


def _confined(request: Request) -> Replayed:
    if request.allowed:
        places = printable(", ".join(request.allowed))
        click.echo(
            f"the handler may connect to {places}; what it writes there stays", err=True
        )

    try:
        found = replay_confined(request)
    except CannotConfine as error:
        msg = f"{error}; --no-sandbox runs it without isolation, at your own risk"
        raise RedriveError(msg) from None

    if found.words:
        click.echo(found.words, err=True)

    return found


def _here(request: Request) -> Replayed:
    # What a handler prints must not stand between JSON lines.
    elsewhere = contextlib.redirect_stdout(sys.stderr)
    with elsewhere if wants_json() else contextlib.nullcontext():
        return replay_here(request)


def _write_test(file: Path, found: Replayed) -> bool:
    """Write the test, if there is one that fails now."""
    source = found.result and found.result.test
    if source is None:
        return False

    file.parent.mkdir(parents=True, exist_ok=True)

    # Mode x refuses a file that was made after the check.
    with file.open("x") as written:
        written.write(source)

    return True


def _say_test(file: Path, *, is_written: bool) -> int:
    if not is_written:
        click.echo(
            "no test is written, because it would not fail for the same reason",
            err=True,
        )
        return Exit.FAILED

    if not wants_json():
        click.echo(f"wrote {file}: it fails now, and passes when the handler returns")

    return Exit.DONE
