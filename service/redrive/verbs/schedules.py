"""Changes of schedules: pause, resume, run now."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from redrive.database.rows import Connection
from redrive.jobs import schedules
from redrive.verbs.refusal import Conflict, Missing
from redrive.verbs.verb import (
    Done,
    Opening,
    Order,
    Preview,
    Verb,
    named,
    on_pause,
    one_of,
)

COLUMNS = ("name", "kind", "queue", "cron", "tz", "state", "next_at", "last_at")


def _preview_schedule(
    conn: Connection, order: Order, *, word: str, remark: str
) -> Preview:
    name = named(order.query, "name")
    rows = [row for row in schedules.find(conn) if row["name"] == name]
    seen = one_of(rows, f"schedule {name}")

    for row in rows:  # at most one
        remarks, obstacle = on_pause(
            f"Schedule {name}",
            word,
            remark.format_map(row),
            is_paused=bool(row["paused_at"]),
        )
        return replace(seen, remarks=remarks, obstacle=obstacle)

    return seen


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
        "schedule pause {name}",
        "Pause",
        "schedule",
        partial(
            _preview_schedule,
            word="pause",
            remark="Jobs that it has enqueued continue.",
        ),
        partial(_schedule, act=schedules.pause, key="paused", text="{name} is paused."),
        columns=COLUMNS,
        names=("name",),
        help="""
            \b
            redrive schedule pause report.daily --why 'the warehouse is being moved' --yes

            Jobs that they have enqueued continue. Shows what it would do, then asks,
            unless you give --yes.
        """,
        takes_several=True,
    ),
    "resume-schedule": Verb(
        "Fire a paused schedule again from its next slot.",
        "schedule resume {name}",
        "Resume",
        "schedule",
        partial(
            _preview_schedule,
            word="resume",
            remark="Slots that passed while it was paused are skipped.",
        ),
        partial(
            _schedule, act=schedules.resume, key="resumed", text="{name} is resumed."
        ),
        columns=COLUMNS,
        names=("name",),
        help="""
            \b
            redrive schedule resume report.daily --why 'the model is fixed' --yes

            Slots that passed while they were paused are skipped, whatever their
            catch_up. Shows what it would do, then asks, unless you give --yes.
        """,
        takes_several=True,
    ),
    "run-schedule": Verb(
        "Enqueue the job of a schedule now; its slots stay.",
        "schedule now {name}",
        "Run now",
        "schedule",
        partial(
            _preview_schedule,
            word="now",
            remark="{name}: one job of {kind} in queue {queue}, now. The slots stay as they are.",
        ),
        partial(
            _schedule,
            act=schedules.run_now,
            key="job",
            text="{name} has enqueued job {done}; redrive job show {done}.",
        ),
        columns=COLUMNS,
        names=("name",),
        help="""
            \b
            redrive schedule now report.daily --why 'the numbers were late'

            Paused schedules run, too. `last at` of a schedule is its last slot, so this
            does not change it. Shows what it would do, then asks, unless you give
            --yes.
        """,
        takes_several=True,
    ),
}
