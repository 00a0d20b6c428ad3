"""redrive enqueue."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, LiteralString, NamedTuple, cast

import click
from psycopg.errors import InsufficientPrivilege

from redrive.cli.support.completion import Known
from redrive.cli.support.connection import database
from redrive.cli.support.json_lines import read_json, read_object
from redrive.cli.support.options import (
    Command,
    Duration,
    Instant,
    json_option,
    settings_options,
)
from redrive.cli.support.output import answer, emit, wants_json, warn
from redrive.cli.support.terminal import progress
from redrive.database.rows import Connection, column
from redrive.enqueue import CHUNK, Enqueued, enqueue_many, enqueue_reporting
from redrive.errors import InvalidJob
from redrive.rules.nearest import suggestion
from redrive.rules.payloads.job_fields import (
    OPTIONS,
    FieldType,
    JobFields,
    JobOptions,
    check_job,
)
from redrive.rules.rows import Fields, Row
from redrive.settings import Settings

if TYPE_CHECKING:
    from redrive.handlers import Handlers


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
@click.argument("kind", type=Known("kind"))
@click.argument("payload", required=False)
@settings_options()
@field_options
@json_option
def enqueue(kind: str, payload: str | None, settings: Settings, **options: Any) -> None:
    """Enqueue one job, or many from standard input.

    \b
    redrive enqueue invoice.charge '{"invoice": 17}' --key invoice-17
    redrive enqueue invoice.charge - < invoice.json
    redrive enqueue - < jobs.jsonl      # lines of {"kind": ..., "payload": {...}, "queue"?, ...}

    The command prints the job's id. If the key is taken, it prints the id of the job that has the
    key. It warns if no live worker handles the kind. If REDRIVE_HANDLERS is set, a job without
    --queue goes to the queue of its handler. A line may have any field that has a flag here, under
    its name in the API. Lines are enqueued in chunks of 5000. A chunk is enqueued as a whole or not
    at all, and an error names the bad line.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if kind == "-":
        _enqueue_lines(settings, sys.stdin.buffer, given)
        return

    if payload == "-":
        payload = sys.stdin.read()
    content: Any = {} if payload is None else _read_payload("payload", payload)
    registry = _registry(settings)
    chosen = cast("JobOptions", {**_declared(registry, kind), **given})
    job: JobFields = {"kind": kind, "payload": content, **chosen}
    check_job(job)  # before a database is needed

    with database(settings) as conn:
        _show(enqueue_reporting(conn, kind, content, **chosen))
        _warn_unhandled(conn, kind, registry)


def _registry(settings: Settings) -> Handlers | None:
    """Return the handlers that REDRIVE_HANDLERS names, if it is set.

    Raises:
        CannotImport: the registry fails.
    """
    if settings.handlers is None:
        return None

    # Imported only if a registry is named, so that the command starts fast.
    return importlib.import_module("redrive.handlers").load(settings.handlers)


def _declared(registry: Handlers | None, kind: str) -> Fields:
    """Return the options that the handler of a kind declares; none without a handler."""
    handler = registry.get(kind) if registry else None
    if handler is None:
        return {}

    options: Fields = importlib.import_module(
        "redrive.handlers.job_function"
    ).options_for(handler, {})
    return options


_HANDLED: LiteralString = """
    select distinct unnest(coalesce(w.kinds, '{*}')) from redrive.workers w
    where redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl)"""


def _warn_unhandled(conn: Connection, kind: str, registry: Handlers | None) -> None:
    """Warn about a kind that no live worker and no registry handles: often a typo."""
    known = {handler.kind for handler in registry or ()}
    # A producer's login may not read the workers.
    with suppress(InsufficientPrivilege):
        known.update(column(conn, _HANDLED))

    if known and not any(fnmatchcase(kind, pattern) for pattern in known):
        warn(f"no live worker handles {kind!r}{suggestion(kind, known)}")


NO_PAYLOAD = "must be an object, not null"

_STATUS = {
    "live": "has not ended",
    "succeeded": "has succeeded",
    "replaced": "gets this payload and time",
}
"""Description of the job that has the key, by `Enqueued.outcome`."""


def _show(report: Enqueued) -> None:
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
    jobs = _jobs(lines, defaults, _registry(settings))

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
    report = {"read": read, "created": created}
    text = f"{created} enqueued"

    taken = read - created
    if taken > 0:
        text += f", {taken} not new"

    answer(report, text)


def _enqueue_chunk(conn: Connection, chunk: list[Line]) -> int:
    """Enqueue all of a chunk or none of it; return how many are new."""
    jobs = [line.job for line in chunk]
    try:
        with conn.transaction():
            return enqueue_many(conn, jobs)
    except InvalidJob as error:
        # The path begins with jobs[N] of the chunk; the user knows the line.
        n, _, path = error.path.removeprefix("jobs[").partition("]")
        index = 0
        if n.isdigit():
            index = int(n)

        number = chunk[index].number
        raise InvalidJob(f"line {number}{path}", error.rule) from None


def _jobs(
    lines: IO[bytes], defaults: Fields, registry: Handlers | None
) -> Iterator[Line]:
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue

        # A field of the line overrides a flag, and a flag the handler's option.
        job = {**defaults, **_read_line(f"line {number}", text)}
        kind = str(job.get("kind"))
        yield Line(number, cast("JobFields", {**_declared(registry, kind), **job}))


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
