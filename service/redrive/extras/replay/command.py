"""redrive job replay: run the failed attempt of a dead letter again."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from redrive.cli.support.bundle import read_bundle_of
from redrive.cli.support.exits import Exit
from redrive.cli.support.options import (
    Id,
    Reveal,
    json_option,
    reveal_options,
    settings_options,
)
from redrive.cli.support.output import answer, printable, shown_id, wants_json
from redrive.errors import RedriveError, SettingsError
from redrive.rules.rows import Row

if TYPE_CHECKING:
    from redrive.extras.replay.bundle import Bundle
    from redrive.extras.replay.calls import Address
    from redrive.extras.replay.replay import Replayed
    from redrive.extras.replay.scene import Request
    from redrive.settings import Settings

DEFAULT_FILE = "-"
"""Value of --pytest without a file."""

_WORDS = {
    "same": "the same failure at the same line",
    "same_failure": "the same failure",
    "moved": "the same failure in the same function, at another line",
    "other": "another failure",
    None: "it failed",
}
"""How a failure compares with the one on record."""


@dataclass(frozen=True, slots=True)
class _Way:
    """Options of a replay."""

    handlers: str
    debug: bool
    sandbox: bool
    allowed: "dict[str, list[Address]]"
    test: Path | None


@click.command()
@click.argument("job", metavar="[ID]", required=False, type=Id())
@click.option(
    "--handlers",
    metavar="MODULE:ATTRIBUTE",
    help="Registry of the handlers. [env: REDRIVE_HANDLERS]",
)
@click.option(
    "--pdb", "debug", is_flag=True, help="Stop in the debugger where it fails."
)
@click.option(
    "--pytest",
    "test",
    is_flag=False,
    flag_value=DEFAULT_FILE,
    metavar="[FILE]",
    help="Write a test that fails until the cause is fixed."
    " [default file: test_job_ID.py]",
)
@click.option(
    "--payload",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Use the payload in this file, a JSON object.",
)
@click.option(
    "--bundle",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Replay what redrive dlq export printed. This needs no database.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="HOST:PORT",
    help="Let the handler connect there, such as to a database of development. What it"
    " writes there stays. Repeatable. [env: REDRIVE_REPLAY_ALLOW]",
)
@click.option(
    "--no-sandbox",
    is_flag=True,
    help="Run the handler with all its effects, at your own risk.",
)
@reveal_options
@settings_options("actor", "handlers")
@json_option
def replay(
    job: int | None,
    debug: bool,
    test: str | None,
    payload: Path | None,
    file: Path | None,
    allow: tuple[str, ...],
    no_sandbox: bool,
    reveal: Reveal | None,
    settings: "Settings",
) -> int:
    """Run the failed attempt of a dead letter again, as it was.

    \b
    redrive job replay 17 --handlers app.jobs:jobs --pdb
    redrive job replay 17 --handlers app.jobs:jobs --pytest tests/test_job_17.py
    redrive job replay --bundle letter.json --handlers app.jobs:jobs

    The handler gets the payload, headers, checkpoint, attempt number, time and random
    seed of that attempt, and the command says whether it fails at the same line. It
    runs in a sandbox without network and without changes to files; --allow opens one
    address. Nothing is settled, and the job stays as it is. Secrets are redacted,
    unless you give --reveal and --why. Exit code: 0 if the handler returned or a test
    was written, else 1.
    """
    from redrive.extras.replay.bundle import with_payload  # noqa: PLC0415 # slow

    if allow and no_sandbox:
        raise click.UsageError(
            "--allow is for the sandbox, and goes without --no-sandbox"
        )

    if debug and (wants_json() or test):
        raise click.UsageError("--pdb goes without --json and --pytest")

    if test is not None and reveal is not None:
        raise click.UsageError(
            "a test must not hold secrets: give made-up values by --payload, not --reveal"
        )

    target = _target(settings)
    allowed = _allowed(allow, settings)
    if file:
        found = _from_file(job, file, reveal)
    else:
        found = _from_database(_required(job), reveal, settings)

    if payload is not None:
        found = with_payload(found, payload)

    way = _Way(
        handlers=target,
        debug=debug,
        sandbox=not no_sandbox,
        allowed=allowed,
        test=_test_file(test, found),
    )
    return _replay(found, way)


def _allowed(
    given: tuple[str, ...], settings: "Settings"
) -> "dict[str, list[Address]]":
    from redrive.extras.replay.calls import addresses_of  # noqa: PLC0415 # slow

    if given:
        return addresses_of(given, "--allow")
    return addresses_of(settings.replay_targets(), settings.name_of("replay_allow"))


def _required(job: int | None) -> int:
    if job is None:
        raise click.UsageError("give the id of a job, or --bundle FILE")
    return job


def _target(settings: "Settings") -> str:
    if settings.handlers is None:
        raise click.UsageError("--handlers MODULE:ATTRIBUTE is missing")
    return settings.handlers


def _from_file(job: int | None, file: Path, reveal: Reveal | None) -> "Bundle":
    from redrive.extras.replay.bundle import read_bundle  # noqa: PLC0415 # slow

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


def _from_database(job: int, reveal: Reveal | None, settings: "Settings") -> "Bundle":
    from redrive.extras.replay.bundle import bundle_of  # noqa: PLC0415 # slow

    return bundle_of(read_bundle_of(job, reveal, settings))


def _test_file(test: str | None, bundle: "Bundle") -> Path | None:
    """Return the file of the test.

    Raises:
        SettingsError: there is such a file, or the bundle was exported with --reveal.
    """
    if test is None:
        return None

    if not bundle.redacted:
        msg = (
            f"--pytest: the bundle of job {bundle.id} has secrets, and a test must not;"
            " export it again without --reveal"
        )
        raise SettingsError(msg)

    file = Path(f"test_job_{bundle.id}.py" if test == DEFAULT_FILE else test)
    if file.exists() or file.is_symlink():
        msg = f"--pytest: {file} exists; name another file, or remove it"
        raise SettingsError(msg)

    return file


def _replay(bundle: "Bundle", way: _Way) -> int:
    from redrive.extras.replay.scene import Request  # noqa: PLC0415 # slow

    request = Request(
        way.handlers,
        bundle,
        debug=way.debug,
        test=way.test is not None,
        is_harmless=way.sandbox and not way.allowed,
        allowed=way.allowed,
    )
    found = _run(request, way)

    is_written = way.test is not None and _write_test(way.test, found)
    report = _facts(bundle, found)
    report["test"] = None
    if is_written:
        report["test"] = str(way.test)

    answer(report, "\n".join(_lines(bundle, found)))

    if way.test is not None:
        return _say_test(way.test, is_written=is_written)

    result = found.result
    has_failed = result is None or result.failure is not None
    if has_failed:
        return Exit.FAILED

    return Exit.DONE


def _run(request: "Request", way: _Way) -> "Replayed":
    from redrive.extras.replay.process import CannotConfine  # noqa: PLC0415 # slow
    from redrive.extras.replay.replay import replay_confined, replay_here  # noqa: PLC0415 # slow

    if way.sandbox:
        if way.allowed:
            places = printable(", ".join(way.allowed))
            click.echo(
                f"the handler may connect to {places}; what it writes there stays",
                err=True,
            )

        try:
            found = replay_confined(request)
        except CannotConfine as error:
            msg = f"{error}; --no-sandbox runs it without isolation, at your own risk"
            raise RedriveError(msg) from None

        if found.words:
            click.echo(found.words, err=True)

        return found

    # What a handler prints must not stand between JSON lines.
    elsewhere = contextlib.redirect_stdout(sys.stderr)
    with elsewhere if wants_json() else contextlib.nullcontext():
        return replay_here(request)


def _write_test(file: Path, found: "Replayed") -> bool:
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


def _facts(bundle: "Bundle", found: "Replayed") -> Row:
    """Return a replay as `job replay --json` prints it."""
    from redrive.extras.replay.places import place_of  # noqa: PLC0415 # slow

    result = found.result
    failure = result and result.failure
    place = None if failure is None else place_of(failure)

    return {
        "id": bundle.id,
        "kind": bundle.kind,
        "attempt": bundle.attempt,
        "time": bundle.started_at,
        "seed": bundle.seed,
        "outcome": result.outcome if result else None,
        "same_line": None if result is None else result.verdict == "same",
        "verdict": result and result.verdict,
        "error_class": failure and failure["error_class"],
        "message": failure and failure["message"],
        "place": None if place is None else place._asdict(),
        "refused_calls": len(found.targets),
        "refused_targets": _targets(found),
        "redacted": bundle.hidden,
        "end": found.end,
    }


def _lines(bundle: "Bundle", found: "Replayed") -> Iterator[str]:
    """Yield what people read of a replay."""
    shown = shown_id(bundle.id)
    title = click.style(f"job {shown}", bold=True)
    kind = printable(bundle.kind)
    at = printable(bundle.started_at)
    yield f"{title}  {kind}  attempt {bundle.attempt}, as of {at}"

    result = found.result
    if result is None:
        yield f"it did not end: {found.end}"
    elif result.failure is None:
        reason = f" ({printable(result.reason)})" if result.reason else ""
        yield f"it did not fail: {result.outcome}{reason}"
    elif found.targets and not (result.is_same or result.has_moved):
        yield f"it ended with {printable(result.failure['error_class'])}"
    else:
        yield f"{_WORDS[result.verdict]}:"
        yield from _traceback(result.failure)

    is_same = result is not None and result.is_same
    if not is_same:
        yield from _hints(bundle, found)


def _targets(found: "Replayed") -> list[str]:
    """Return where refused calls would have gone, each once.

    A host name was looked up in vain, so its address is not known.
    """
    from redrive.extras.replay.calls import SOMEWHERE  # noqa: PLC0415 # slow

    lookups = found.result.lookups if found.result and found.targets else []
    known = dict.fromkeys([*found.targets, *lookups])
    if len(known) > 1:
        known.pop(SOMEWHERE, None)

    return list(known)


def _refusals(found: "Replayed") -> Iterator[str]:
    """Yield one sentence for each target of refused calls."""
    from redrive.extras.replay.calls import SOMEWHERE  # noqa: PLC0415 # slow

    caller = printable(_caller(found))
    for target in _targets(found):
        tried = f"{caller} tried to connect to {printable(target)}"
        if target == SOMEWHERE:
            how = "--no-sandbox lets it through, at your own risk"
        else:
            how = f"allow it with --allow {printable(target)}"

        yield f"{tried}; replay refuses connections; {how}"


def _caller(found: "Replayed") -> str:
    """Return the frame of the application that opened a connection."""
    from redrive.extras.replay.places import own_place_of  # noqa: PLC0415 # slow

    result = found.result
    place = None
    if result is not None:
        failed_at = own_place_of(result.failure) if result.failure else None
        place = result.caller or (str(failed_at) if failed_at else None)
    if place is None:
        return "the handler"

    return place.removeprefix(f"{Path.cwd()}/")


def _traceback(failure: Row) -> Iterator[str]:
    from redrive.observability.tracebacks import traceback_lines  # noqa: PLC0415 # slow

    yield from traceback_lines(failure)


def _hints(bundle: "Bundle", found: "Replayed") -> Iterator[str]:
    """Yield why it may not fail as it did, and what to try."""
    from redrive.extras.replay.places import place_of  # noqa: PLC0415 # slow
    from redrive.testing.past import NO_CLOCK, can_set_clock  # noqa: PLC0415 # slow

    before = bundle.failure
    if before is not None:
        place = place_of({"detail": before.detail})
        at = f" at {place}" if place else ""
        yield f"on record is: {printable(before.error_class)}{printable(at)}"

    has_moved = found.result is not None and found.result.has_moved
    if found.targets and not has_moved:
        yield from _refusals(found)

    if bundle.hidden:
        fields = printable(", ".join(bundle.hidden))
        yield f"redacted: {fields}; give values by --payload FILE, or --reveal --why TEXT"

    if not can_set_clock():
        yield f"the clock was not set back: {NO_CLOCK}"
