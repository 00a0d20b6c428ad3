"""Switches of the console: queues, breakers, groups, limits and schedules."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, LiteralString

from redrive.console.actions.acknowledge import ACKNOWLEDGE, UNACKNOWLEDGE
from redrive.console.actions.change import (
    Change,
    Done,
    Input,
    Opening,
    Order,
    Preview,
    name_in,
    named,
)
from redrive.console.actions.group import group_of, preview_group
from redrive.console.query import Query, command
from redrive.console.security.access import Refused
from redrive.database.rows import Connection, value
from redrive.database.rows import rows as rows_of
from redrive.dead_letters.grouping import groups
from redrive.live_jobs.flow_control import breakers, limits, schedules
from redrive.rules.rows import Row
from redrive.rules.scheduling import concurrency
from redrive.rules.scheduling.instants import seconds

MOST_AT_ONCE = 1_000_000
EXAMPLE_AT_ONCE = 20
"""Concurrency in the shown command for a name that has no limit yet."""
MOST_MUTED_SECONDS = 366 * 86_400
_DEPTH: LiteralString = """
    select queue, ready, scheduled, retrying, running, dead, paused
    from redrive.depths_v1() where queue = %s"""


def _preview_queue(conn: Connection, query: Query, *, verb: str, word: str) -> Preview:
    name = name_in(query, "queue")
    rows = rows_of(conn, _DEPTH, name)
    columns: tuple[str, ...] = ()
    obstacle = f"No job has been in a queue {name} yet."

    for row in rows:  # at most one
        # The last column is `paused`. The obstacle tells the same in words.
        columns = tuple(row)[:-1]
        obstacle = _changes_nothing(name, word, is_paused=row["paused"])

    return Preview(
        title=f"{verb} queue {name}",
        matched=len(rows),
        unit="queue",
        verb=verb,
        shell=command(("queue", word, name), why="..."),
        query=query,
        columns=columns,
        rows=rows,
        remarks=(_QUEUE_REMARKS[word],),
        obstacle=obstacle,
    )


_QUEUE_REMARKS = {
    "pause": "Workers stop claiming from it within a second. Running jobs continue.",
    "resume": "Workers claim from it again.",
}


def _changes_nothing(name: str, word: str, *, is_paused: bool) -> str | None:
    """Return why it would change nothing to pause or resume; None if it would."""
    if word == "pause" and is_paused:
        return f"{name} is paused already."
    if word == "resume" and not is_paused:
        return f"{name} is not paused."
    return None


def _pause(opening: Opening, order: Order) -> Done:
    name = name_in(order.query, "queue")

    with opening() as conn:
        if not rows_of(conn, _DEPTH, name):
            raise Refused(404, f"no job has been in a queue {name} yet")

        value(
            conn,
            "select redrive.pause_v1(%s, %s, %s)",
            name,
            order.actor,
            order.why,
        )

    return Done(
        text=f"{name} is paused.",
        report={"queue": name, "paused": True},
        path="/queues",
    )


def _resume(opening: Opening, order: Order) -> Done:
    name = name_in(order.query, "queue")

    with opening() as conn:
        if not value(
            conn,
            "select redrive.resume_v1(%s, %s, %s)",
            name,
            order.actor,
            order.why,
        ):
            raise Refused(409, f"{name} was not paused")

    return Done(
        text=f"{name} is resumed.",
        report={"queue": name, "paused": False},
        path="/queues",
    )


_FORCED = {
    "open": "Jobs that need it are released without an attempt until the breaker is reset.",
    "closed": "Jobs that need it run, even if they fail, until the breaker is reset.",
    None: "The breaker closes, and opens again if jobs fail.",
}


def _preview_breaker(
    conn: Connection, query: Query, *, verb: str, state: str | None
) -> Preview:
    name = name_in(query, "name")
    rows = rows_of(
        conn,
        "select name, state, failures, successes from redrive.breakers where name = %s",
        name,
    )
    words = ("breaker", "force", name, state) if state else ("breaker", "reset", name)

    return Preview(
        title=f"{verb}: breaker {name}",
        matched=len(rows),
        unit="breaker",
        verb=verb,
        shell=command(words, why="..."),
        query=query,
        columns=("name", "state", "failures", "successes"),
        rows=rows,
        remarks=(_FORCED[state],),
        obstacle=None if rows else f"There is no breaker {name}.",
    )


def _force(opening: Opening, order: Order, *, state: str | None) -> Done:
    name = name_in(order.query, "name")

    with opening() as conn:
        if not breakers.force(conn, name, state, **order.signed):
            raise Refused(404, f"there is no breaker {name}")

    text = f"{name} is held {state}." if state else f"{name} is reset."

    return Done(
        text=text,
        report={"name": name, "forced": state},
        path="/breakers",
    )


def _preview_mute(conn: Connection, query: Query, *, verb: str) -> Preview:
    words = ["dlq", "mute", named(query, "group")]
    inputs = [Input(name="for", label="For how long (2h, 1d)", default="1d")]

    if verb == "Unmute":
        words.append("--off")
        inputs.clear()

    shell = command(words, why="...")
    remarks = ("Redrives skip a muted group.",)
    seen = preview_group(conn, query, verb, shell, remarks)

    return replace(seen, inputs=inputs)


def _mute(opening: Opening, order: Order, *, is_muted: bool) -> Done:
    until = None
    if is_muted:
        until = _end_of_mute(order.more.get("for") or "1d")

    with opening() as conn:
        name = group_of(conn, order)["group"]
        groups.mute(conn, name, until, **order.signed)

    state = "muted" if is_muted else "no longer muted"

    return Done(
        text=f"The group is {state}.",
        report={"group": name, "muted_until": until},
        path=f"/groups/{name}",
    )


def _end_of_mute(text: str) -> datetime:
    length = seconds(text)
    if length is None or not 0 < length <= MOST_MUTED_SECONDS:
        raise Refused(400, f"for is {text!r}; write 30d, 12h, 5m or 10s")
    return datetime.now(UTC) + timedelta(seconds=length)


# ---------------------------------------------------------------------- limits


def _limit(query: Query) -> str:
    name = named(query, "name")
    if not concurrency.NAME.match(name):
        raise Refused(
            400,
            f"name is {name!r}; it must be like emails, customer:17 or customer:*",
        )

    return name


def _preview_set_limit(conn: Connection, query: Query) -> Preview:
    name = _limit(query)
    rows = _limits_named(conn, name)
    verb = "Change" if rows else "Set"
    at_once = EXAMPLE_AT_ONCE
    rate = None
    if rows:
        at_once = rows[0]["concurrency"]
        rate = rows[0]["rate"]

    at_once_now = "" if at_once is None else str(at_once)
    words = ("limit", "set", name)
    effect = "The limit applies at once. Running jobs continue."

    return Preview(
        title=f"{verb} the limit {name}",
        matched=1,
        unit="limit",
        verb="Set",
        shell=command(
            words,
            None,
            concurrency=at_once_now,
            rate=rate,
            why="...",
        ),
        query=query,
        columns=_LIMIT_COLUMNS,
        rows=rows,
        remarks=(
            f"{effect} An empty field sets no limit.",
            *_sentence(limits.unused(conn, name)),
        ),
        inputs=[
            Input(
                name="concurrency",
                label="Jobs at once, at most",
                # The example is only for the shown command.
                default=at_once_now if rows else "",
            ),
            Input(
                name="rate",
                label="Starts per time, at most (20/1m, 100/s)",
                default=rate or "",
            ),
        ],
    )


def _limits_named(conn: Connection, name: str) -> list[Row]:
    return [row for row in limits.find(conn) if row["name"] == name]


_LIMIT_COLUMNS = ("name", "used", "concurrency", "rate", "waiting")


def _set_limit(opening: Opening, order: Order) -> Done:
    name = _limit(order.query)
    at_once = _at_once(order.more.get("concurrency", "").strip())
    rate_text = order.more.get("rate", "").strip()
    rate = _rate(rate_text)
    if at_once is None and rate is None:
        fault = "concurrency and rate are empty; give at least one, or use remove-limit"
        raise Refused(400, fault)

    with opening() as conn:
        unused = limits.unused(conn, name)
        limits.put(
            conn,
            name,
            at_once,
            rate,
            **order.signed,
        )

    report = {
        "name": name,
        "concurrency": at_once,
        "rate": rate_text or None,
        "warning": unused,
    }
    text = " ".join([f"The limit {name} is set.", *_sentence(unused)])

    return Done(
        text=text,
        report=report,
        path="/limits",
    )


def _rate(text: str) -> float | None:
    if not text:
        return None
    try:
        # A call of the API gives a plain number of starts per second.
        return concurrency.per_second(text if "/" in text else f"{text}/s")
    except ValueError as error:
        raise Refused(400, f"rate: {error}") from None


def _sentence(message: str | None) -> list[str]:
    """Format the message of a change as a sentence, if there is one."""
    if message is None:
        return []
    end = "" if message.endswith("?") else "."
    return [message[0].upper() + message[1:] + end]


def _at_once(text: str) -> int | None:
    if not text:
        return None

    is_number = text.isascii() and text.isdigit()
    # 20 digits are enough to compare. int() fails if there are thousands.
    if not is_number or int(text[:20]) > MOST_AT_ONCE:
        raise Refused(
            400,
            f"concurrency is {text!r}; it must be a whole number, 0 to 1000000",
        )

    return int(text)


def _preview_remove_limit(conn: Connection, query: Query) -> Preview:
    name = _limit(query)
    rows = _limits_named(conn, name)

    return Preview(
        title=f"Remove the limit {name}",
        matched=len(rows),
        unit="limit",
        verb="Remove",
        shell=command(("limit", "rm", name), why="..."),
        query=query,
        columns=_LIMIT_COLUMNS,
        rows=rows,
        remarks=("Jobs that wait for this limit can run.",),
        obstacle=None if rows else f"There is no limit {name}.",
    )


def _remove_limit(opening: Opening, order: Order) -> Done:
    name = _limit(order.query)

    with opening() as conn:
        if not limits.put(
            conn,
            name=name,
            concurrency=None,
            rate=None,
            **order.signed,
        ):
            raise Refused(404, f"there is no limit {name}")

    return Done(
        text=f"The limit {name} is removed.",
        report={"name": name, "removed": True},
        path="/limits",
    )


# ---------------------------------------------------------------------- schedules


def _preview_schedule(
    conn: Connection, query: Query, *, verb: str, word: str, remark: str
) -> Preview:
    name = named(query, "name")
    rows = [row for row in schedules.find(conn) if row["name"] == name]
    obstacle = f"There is no schedule {name}."

    for row in rows:  # at most one
        obstacle = _changes_nothing(name, word, is_paused=bool(row["paused_at"]))

    return Preview(
        title=f"{verb}: schedule {name}",
        matched=len(rows),
        unit="schedule",
        verb=verb,
        shell=command(("schedule", word, name), why="..."),
        query=query,
        columns=(
            "name",
            "kind",
            "queue",
            "cron",
            "tz",
            "state",
            "next_at",
            "last_at",
        ),
        rows=rows,
        remarks=(remark,),
        obstacle=obstacle,
    )


def _schedule(
    opening: Opening, order: Order, *, act: Callable[..., Any], key: str, text: str
) -> Done:
    name = named(order.query, "name")

    with opening() as conn:
        done = act(conn, name, **order.signed)
        # The result does not tell an unknown schedule from one that was not paused.
        names = [] if done else [row["name"] for row in schedules.find(conn)]

    if not done and name not in names:
        raise Refused(404, f"there is no schedule {name}")
    if not done:
        raise Refused(409, f"{name} was not paused")

    return Done(
        text=text.format(name=name, done=done),
        report={"name": name, key: done},
        path="/schedules",
    )


SWITCHES: Mapping[str, Change] = {
    "pause": Change(
        "Stop claiming from a queue.",
        partial(_preview_queue, verb="Pause", word="pause"),
        _pause,
        names=("queue",),
    ),
    "resume": Change(
        "Claim from a paused queue again.",
        partial(_preview_queue, verb="Resume", word="resume"),
        _resume,
        names=("queue",),
    ),
    "hold-open": Change(
        "Hold a breaker open.",
        partial(_preview_breaker, verb="Hold open", state="open"),
        partial(_force, state="open"),
        names=("name",),
    ),
    "hold-closed": Change(
        "Hold a breaker closed.",
        partial(_preview_breaker, verb="Hold closed", state="closed"),
        partial(_force, state="closed"),
        names=("name",),
    ),
    "reset": Change(
        "Reset a breaker that is held open or closed.",
        partial(_preview_breaker, verb="Reset", state=None),
        partial(_force, state=None),
        names=("name",),
    ),
    "acknowledge": ACKNOWLEDGE,
    "unacknowledge": UNACKNOWLEDGE,
    "mute": Change(
        "Skip a group in redrives for a while.",
        partial(_preview_mute, verb="Mute"),
        partial(_mute, is_muted=True),
        names=("group",),
    ),
    "unmute": Change(
        "Include a muted group in redrives again.",
        partial(_preview_mute, verb="Unmute"),
        partial(_mute, is_muted=False),
        names=("group",),
    ),
    "set-limit": Change(
        "Set a limit on the jobs that use a name.",
        _preview_set_limit,
        _set_limit,
        names=("name",),
    ),
    "remove-limit": Change(
        "Remove a limit.",
        _preview_remove_limit,
        _remove_limit,
        names=("name",),
    ),
    "pause-schedule": Change(
        "Stop firing a schedule until it is resumed.",
        partial(
            _preview_schedule,
            verb="Pause",
            word="pause",
            remark="Jobs that it has enqueued continue.",
        ),
        partial(
            _schedule,
            act=schedules.pause,
            key="paused",
            text="{name} is paused.",
        ),
        names=("name",),
    ),
    "resume-schedule": Change(
        "Fire a paused schedule again from its next slot.",
        partial(
            _preview_schedule,
            verb="Resume",
            word="resume",
            remark="Slots that passed while it was paused are skipped.",
        ),
        partial(
            _schedule,
            act=schedules.resume,
            key="resumed",
            text="{name} is resumed.",
        ),
        names=("name",),
    ),
    "run-schedule": Change(
        "Enqueue the job of a schedule now; its slots stay.",
        partial(
            _preview_schedule,
            verb="Run now",
            word="now",
            remark="Its slots stay as they are.",
        ),
        partial(
            _schedule,
            act=schedules.run_now,
            key="job",
            text="{name} has enqueued job {done}.",
        ),
        names=("name",),
    ),
}
"""Word in the address -> change."""
