"""redrive enqueue."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import IO, Any, cast

import click
import msgspec

from redrive.cli.connection import database
from redrive.cli.options import Duration, Instant, database_option, json_option, settings_for
from redrive.cli.output import emit
from redrive.cli.terminal import progress
from redrive.enqueue import CHUNK, check, enqueue_many, enqueue_reporting
from redrive.errors import InvalidJob

LINE_FIELDS = frozenset(
    {
        "kind",
        "payload",
        "queue",
        "run_at",
        "priority",
        "max_attempts",
        "idempotency_key",
        "ordering_key",
        "tenant",
        "expires_in",
        "headers",
    }
)


@click.command()
@click.argument("kind")
@click.argument("payload", required=False)
@database_option
@click.option("--queue", help="Queue. [default: default]")
@click.option("--run-at", type=Instant(), help="Not before this instant.")
@click.option("--in", "run_in", type=Duration(), help="Not before this much time from now: 10m.")
@click.option("--priority", type=click.INT, help="Lower runs first. [default: 0]")
@click.option(
    "--max-attempts", type=click.INT, help="Attempts in all. [default: the handler's policy]"
)
@click.option("--key", "idempotency_key", help="Idempotency key: enqueued once per kind.")
@click.option("--ordering-key", help="Jobs with the same one run one after another.")
@click.option("--tenant", help="Whose it is.")
@click.option("--expires-in", type=Duration(), help="Window for the whole job: 1h.")
@json_option
def enqueue(
    kind: str,
    payload: str | None,
    database_url: str | None,
    run_in: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Enqueue one job, or many from standard input.

    \b
    redrive enqueue invoice.charge '{"invoice": 17}' --key invoice-17
    redrive enqueue - < jobs.jsonl      # lines of {"kind": ..., "payload": {...}, "queue"?, "run_at"?, ...}

    Prints the id; with a key that is taken, the id of the job that has it. From standard input,
    each chunk of 5000 lines is enqueued as a whole or not at all, and a bad line is named.
    """
    settings = settings_for(database_url)
    given = {name: value for name, value in options.items() if value is not None}
    if run_in is not None:
        from datetime import UTC, timedelta  # noqa: PLC0415

        given["run_at"] = datetime.now(UTC) + timedelta(seconds=run_in)
    if kind == "-":
        _enqueue_lines(settings, sys.stdin.buffer, given, as_json=as_json)
        return
    job: dict[str, Any] = {"kind": kind, "payload": _read_json("payload", payload or "{}")} | given
    check(**job)
    with database(settings) as conn:
        report = enqueue_reporting(conn, **job)
    if as_json:
        emit({"id": report.id, "created": report.created, "outcome": report.outcome})
    else:
        click.echo(report.id)
        if not report.created:
            click.echo(
                f"not new: the key is taken by this job, which {_HAS[report.outcome]}", err=True
            )


_HAS = {"live": "has not ended", "succeeded": "has succeeded"}


def _enqueue_lines(
    settings: Any, lines: IO[bytes], defaults: Mapping[str, Any], *, as_json: bool
) -> None:
    created = read = 0
    with database(settings) as conn, progress("enqueued", None) as advance:
        try:
            for first, chunk in _chunks(lines, defaults):
                with conn.transaction():
                    created += _enqueue_chunk(conn, first, chunk)
                read += len(chunk)
                advance(len(chunk))
        except Exception:  # a bad line, found here or by reading on; or the database
            click.echo(f"{created} enqueued before this chunk", err=True)
            raise
    if as_json:
        emit({"read": read, "created": created})
    else:
        click.echo(
            f"{created} enqueued" + (f", {read - created} not new" if read > created else "")
        )


def _enqueue_chunk(conn: Any, first: int, chunk: list[tuple[int, dict[str, Any]]]) -> int:
    try:
        return enqueue_many(conn, [job for _, job in chunk])
    except InvalidJob as error:
        n, _, path = error.path.removeprefix("jobs[").partition("]")
        line = chunk[int(n)][0] if n.isdigit() else first
        raise InvalidJob(f"line {line}{path}", error.rule) from None


def _chunks(
    lines: IO[bytes], defaults: Mapping[str, Any]
) -> Iterator[tuple[int, list[tuple[int, dict[str, Any]]]]]:
    chunk: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            chunk.append((number, dict(defaults) | _read_line(number, line)))
        if len(chunk) >= CHUNK:
            yield chunk[0][0], chunk
            chunk = []
    if chunk:
        yield chunk[0][0], chunk


def _read_line(number: int, line: bytes) -> dict[str, Any]:
    read = _read_json(f"line {number}", line)
    if not isinstance(read, dict):
        raise InvalidJob(f"line {number}", "must be an object with at least a kind")
    job = cast("dict[str, Any]", read)
    unknown = sorted(set(job) - LINE_FIELDS)
    if unknown:
        raise InvalidJob(
            f"line {number}.{unknown[0]}",
            f"no field of a job; it has {', '.join(sorted(LINE_FIELDS))}",
        )
    if "kind" not in job:
        raise InvalidJob(f"line {number}.kind", "is missing")
    if isinstance(job.get("run_at"), str):
        try:
            job["run_at"] = Instant().convert(job["run_at"], None, None)
        except click.UsageError as error:
            raise InvalidJob(f"line {number}.run_at", error.message) from None
    return job


def _read_json(path: str, text: str | bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidJob(path, f"is no JSON: {error}") from None
    except RecursionError:
        raise InvalidJob(path, "nested deeper than 64 levels") from None
