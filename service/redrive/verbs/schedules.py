"""Changes of schedules: pause, resume, run now."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from redrive.database.rows import Connection
from redrive.jobs import schedules
from redrive.verbs.query import command
from redrive.verbs.refusal import Conflict, Missing
from redrive.verbs.verb import Done, Opening, Order, Preview, Verb, named, on_pause


def _preview_schedule(
    conn: Connection, order: Order, *, verb: str, word: str, remark: str
) -> Preview:
    name = named(order.query, "name")
    rows = [row for row in schedules.find(conn) if row["name"] == name]
    remarks = [remark]
    obstacle: str | None = f"There is no schedule {name}."

    for row in rows:  # at most one
        remark = remark.format_map(row)
        is_paused = bool(row["paused_at"])
        remarks, obstacle = on_pause(
            f"Schedule {name}", word, remark, is_paused=is_paused
        )

    return Preview(
        title=f"{verb}: schedule {name}",
        matched=len(rows),
        unit="schedule",
        verb=verb,
        shell=command(("schedule", word, name), why="..."),
        query=order.query,
        columns=("name", "kind", "queue", "cron", "tz", "state", "next_at", "last_at"),
        rows=rows,
        remarks=remarks,
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
        raise Missing(f"there is no schedule {name}")
    if not done:
        raise Conflict(f"{name} was not paused")

    return Done(
        text=text.format(name=name, done=done),
        report={"name": name, key: done},
        path="/schedules",
    )


SCHEDULES: Mapping[str, Verb] = {
    "pause-schedule": Verb(
        "Stop firing a schedule until it is resumed.",
        partial(
            _preview_schedule,
            verb="Pause",
            word="pause",
            remark="Jobs that it has enqueued continue.",
        ),
        partial(_schedule, act=schedules.pause, key="paused", text="{name} is paused."),
        names=("name",),
    ),
    "resume-schedule": Verb(
        "Fire a paused schedule again from its next slot.",
        partial(
            _preview_schedule,
            verb="Resume",
            word="resume",
            remark="Slots that passed while it was paused are skipped.",
        ),
        partial(
            _schedule, act=schedules.resume, key="resumed", text="{name} is resumed."
        ),
        names=("name",),
    ),
    "run-schedule": Verb(
        "Enqueue the job of a schedule now; its slots stay.",
        partial(
            _preview_schedule,
            verb="Run now",
            word="now",
            remark="{name}: one job of {kind} in queue {queue}, now. The slots stay as they are.",
        ),
        partial(
            _schedule,
            act=schedules.run_now,
            key="job",
            text="{name} has enqueued job {done}; redrive job show {done}.",
        ),
        names=("name",),
    ),
}
