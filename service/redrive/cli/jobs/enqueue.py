"""redrive enqueue."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import IO, Any, NamedTuple, cast

import click

from redrive.cli.support.connection import database
from redrive.cli.support.json_lines import read_json, read_object
from redrive.cli.support.options import (
    Command,
    Duration,
    Instant,
    json_option,
    settings_options,
)
from redrive.cli.support.output import answer, emit, wants_json
from redrive.cli.support.terminal import progress
from redrive.database.rows import Connection
from redrive.enqueue import CHUNK, enqueue_many, enqueue_reporting
from redrive.errors import InvalidJob
from redrive.rules.payloads.job_fields import (
    OPTIONS,
    FieldType,
    JobFields,
    JobOptions,
    check_job,
)
from redrive.rules.rows import Fields, Row
from redrive.settings import Settings


class JsonText(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # older versions take none
    """Parameter in JSON."""

    name = "json"

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,  # noqa: ARG002 # click's signature
    ) -> Any:
        """Parse the value."""
        return read_json(str(param and param.name), value)


class Names(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # as above
    """List of names separated by commas."""

    name = "names"

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,  # noqa: ARG002 # click's signature
        ctx: click.Context | None,  # noqa: ARG002 # as above
    ) -> list[str]:
        """Parse the value."""
        if not isinstance(value, str):
            return value
        return [name.strip() for name in value.split(",")]


FLAG_TYPES: dict[FieldType, Any] = {
    "text": click.STRING,
    "integer": click.INT,
    "number": click.INT,
    "names": Names(),
    "instant": Instant(),
    "duration": Duration(),
    "object": JsonText(),
}


ALIASES = {"delay": ("--in",)}


def field_options(command: Command) -> Command:
    """Add a flag for each field of a job."""
    for name, field in reversed(OPTIONS.items()):
        flag = field.flag or f"--{name.replace('_', '-')}"
        command = click.option(
            flag,
            *ALIASES.get(name, ()),
            name,
            type=FLAG_TYPES[field.type],
            help=field.help,
        )(command)

    return command


@click.command()
@click.argument("kind")
@click.argument("payload", required=False)
@settings_options()
@field_options
@json_option
def enqueue(
    kind: str,
    payload: str | None,
    settings: Settings,
    **options: Any,
) -> None:
    """Enqueue one job, or many from standard input.

    \b
    redrive enqueue invoice.charge '{"invoice": 17}' --key invoice-17
    redrive enqueue - < jobs.jsonl      # lines of {"kind": ..., "payload": {...}, "queue"?, ...}

    The command prints the job's id. If the key is taken, it prints the id of the job that has the
    key. If REDRIVE_HANDLERS is set, a job without --queue goes to the queue of its handler. A line
    may have any field that has a flag here, under its name in the API. Lines are enqueued in chunks
    of 5000. A chunk is enqueued as a whole or not at all, and an error names the bad line.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if kind == "-":
        _enqueue_lines(settings, sys.stdin.buffer, given)
        return

    content: Any = {} if payload is None else _read_payload("payload", payload)
    declared = _declared_options(settings)(kind)
    chosen = cast("JobOptions", {**declared, **given})
    _enqueue_one(
        settings,
        kind=kind,
        payload=content,
        options=chosen,
    )


def _declared_options(settings: Settings) -> Callable[[str], Fields]:
    """Return a function: the options that the handler of a kind declares.

    They are empty if this process has no handler for the kind.

    Raises:
        CannotImport: the registry that REDRIVE_HANDLERS names fails.
    """
    if settings.handlers is None:
        return lambda _: {}

    # Imported only if a registry is named, so that the command starts fast.
    registry = importlib.import_module("redrive.handlers").load(settings.handlers)
    options_for = importlib.import_module("redrive.handlers.job_function").options_for

    def declared(kind: str) -> Fields:
        handler = registry.get(kind)
        return options_for(handler, {}) if handler else {}

    return declared


NO_PAYLOAD = "must be an object, not null"

_STATUS = {
    "live": "has not ended",
    "succeeded": "has succeeded",
    "replaced": "gets this payload and time",
}
"""Description of the job that has the key, by `Enqueued.outcome`."""


def _enqueue_one(
    settings: Settings, kind: str, payload: Any, options: JobOptions
) -> None:
    job: JobFields = {"kind": kind, "payload": payload, **options}
    check_job(job)  # before a database is needed

    with database(settings) as conn:
        report = enqueue_reporting(conn, kind, payload, **options)

    if wants_json():
        emit(report)
        return

    click.echo(report.id)
    if not report.created:
        status = _STATUS[report.outcome]
        click.echo(f"not new: a job has this key and {status}", err=True)


class Line(NamedTuple):
    """Job from standard input; `number` counts from 1."""

    number: int
    job: JobFields


def _enqueue_lines(settings: Settings, lines: IO[bytes], defaults: Fields) -> None:
    created = read = 0
    jobs = _jobs(lines, defaults, _declared_options(settings))

    with database(settings) as conn, progress("enqueued", None) as advance:
        try:
            while chunk := list(islice(jobs, CHUNK)):
                created += _enqueue_chunk(conn, chunk)
                read += len(chunk)
                advance(len(chunk))
        except Exception:  # a bad line in this or a later chunk, or the database
            click.echo(f"{created} enqueued before this chunk", err=True)
            raise

    _show_counts(read, created)


def _show_counts(read: int, created: int) -> None:
    taken = f", {read - created} not new" if read > created else ""
    report = {"read": read, "created": created}
    answer(report, f"{created} enqueued{taken}")


def _enqueue_chunk(conn: Connection, chunk: list[Line]) -> int:
    """Enqueue all of a chunk or none of it; return how many are new."""
    try:
        with conn.transaction():
            return enqueue_many(conn, [line.job for line in chunk])
    except InvalidJob as error:
        # The path begins with jobs[N] of the chunk; the user knows the line.
        n, _, path = error.path.removeprefix("jobs[").partition("]")
        line = chunk[int(n) if n.isdigit() else 0]
        raise InvalidJob(f"line {line.number}{path}", error.rule) from None


def _jobs(
    lines: IO[bytes],
    defaults: Fields,
    declared: Callable[[str], Fields],
) -> Iterator[Line]:
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue

        # A field of the line overrides a flag, and a flag the handler's option.
        job = {**defaults, **_read_line(f"line {number}", text)}
        kind = str(job.get("kind"))
        yield Line(number, cast("JobFields", {**declared(kind), **job}))


def _read_line(path: str, text: bytes) -> Row:
    fields = read_object(path, text)
    if "payload" in fields and fields["payload"] is None:
        raise InvalidJob(f"{path}.payload", NO_PAYLOAD)

    # A line writes a time as the flag does, so 2h ago is allowed, too.
    if isinstance(fields.get("run_at"), str):
        try:
            fields["run_at"] = Instant().convert(fields["run_at"], None, None)
        except click.UsageError as error:
            raise InvalidJob(f"{path}.run_at", error.message) from None

    return fields


def _read_payload(path: str, text: str) -> Any:
    """Read a payload argument.

    The API takes a missing payload as an empty one. Here it is an error.
    """
    payload = read_json(path, text)
    if payload is None:
        raise InvalidJob(path, NO_PAYLOAD)
    return payload
