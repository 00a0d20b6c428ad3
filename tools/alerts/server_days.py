"""What happens to the server of `n`, to its console, and to work that is left behind."""

from collections.abc import Callable
from itertools import accumulate

from tools.alerts.day import MINUTE, Day
from tools.alerts.engine import STEP, World

HERE = ("n", "")
NORMAL: dict[str, tuple[dict[str, str], float]] = {
    "redrive_pg_connections": ({"scope": "server"}, 40),
    "redrive_pg_connections_available": ({"scope": "server"}, 97),
    "redrive_pg_freeze_age": ({"counter": "transaction", "scope": "server"}, 1.9e8),
    "redrive_pg_freeze_max_age": ({"counter": "transaction"}, 2e8),
    "redrive_pg_table_dead_tuples": ({"table": "jobs"}, 4000),
    "redrive_pg_table_vacuum_threshold": ({"table": "jobs"}, 5000),
    "redrive_pg_oldest_transaction_age_seconds": ({}, 3),
    "redrive_pg_replication_lag_seconds": ({"standby": "b"}, 0),
    "redrive_pg_replication_lag_bytes": ({"standby": "b"}, 5e6),
    "redrive_pg_replication_slot_kept_bytes": ({"slot": "b"}, 2e8),
    "redrive_pg_replication_slot_active": ({"slot": "b"}, 1),
    "redrive_pg_sequence_used_ratio": ({"sequence": "workers_id_seq"}, 0.01),
    "redrive_names_used_ratio": ({"names": "kinds"}, 0.04),
    "redrive_disk_used_bytes": ({"what": "dead_letters"}, 3e9),
    "redrive_disk_budget_bytes": ({}, 1e10),
    "redrive_campaign_idle_seconds": ({"state": "paused"}, 0),
    "redrive_heals_aborted": ({}, 0),
    "redrive_limit_oldest_wait_seconds": ({"limit": "emails"}, 20),
}
"""Series of the exporters, with their labels and what they show on a calm day."""

ERRORS = "errors of the console per scrape"


def _hold(day: Day, name: str, value: float, at: int, lasts: int) -> None:
    """Let a series show this value for some steps."""
    day.server[name] |= dict.fromkeys(range(at, at + lasts), value)


# ------------------------------------------------- troubles that should be told


def connections_run_out(day: Day, at: int) -> None:
    """Nearly all connections are in use."""
    _hold(day, "redrive_pg_connections", 92, at, day.minutes(20, 60))
    day.expect("connections", HERE, at, at + 10 * MINUTE)


def transaction_ids_run_out(day: Day, at: int) -> None:
    """The oldest id is 1.6 billion old."""
    _hold(day, "redrive_pg_freeze_age", 1.6e9, at, day.minutes(20, 50))
    day.expect("wraparound", HERE, at, at + 5 * MINUTE)


def freezing_falls_behind(day: Day, at: int) -> None:
    """The oldest id is 300 million older than it should be."""
    _hold(day, "redrive_pg_freeze_age", 5.5e8, at, 80 * MINUTE)
    day.expect("wraparound", HERE, at, at + 60 * MINUTE)


def dead_rows_pile_up(day: Day, at: int) -> None:
    """Vacuum does not clean a table for more than an hour."""
    _hold(day, "redrive_pg_table_dead_tuples", 4e5, at, 80 * MINUTE)
    day.expect("vacuum", HERE, at, at + 60 * MINUTE)


def a_slot_is_left_behind(day: Day, at: int) -> None:
    """Nobody reads a slot, and much WAL is kept for it."""
    lasts = day.minutes(30, 60)
    _hold(day, "redrive_pg_replication_slot_active", 0, at, lasts)
    _hold(day, "redrive_pg_replication_slot_kept_bytes", 6e9, at, lasts)
    day.expect("replication", HERE, at, at + 15 * MINUTE)


def a_standby_is_late(day: Day, at: int) -> None:
    """A standby is late by minutes, or by gigabytes."""
    late = day.rng.choice(
        (
            ("redrive_pg_replication_lag_seconds", 400),
            ("redrive_pg_replication_lag_bytes", 2e10),
        )
    )
    _hold(day, *late, at, day.minutes(20, 60))
    day.expect("replication", HERE, at, at + 10 * MINUTE)


def names_run_out(day: Day, at: int) -> None:
    """Nearly all allowed kinds are in use."""
    _hold(day, "redrive_names_used_ratio", 0.93, at, day.minutes(20, 60))
    day.expect("names", HERE, at, at + 5 * MINUTE)


def the_disk_fills(day: Day, at: int) -> None:
    """Dead letters take most of their disk budget."""
    _hold(day, "redrive_disk_used_bytes", 9e9, at, day.minutes(20, 60))
    day.expect("disk", HERE, at, at + 15 * MINUTE)


def the_console_is_gone(day: Day, at: int) -> None:
    """No console can be scraped."""
    day.without_console |= set(range(at, at + day.minutes(20, 60)))
    day.expect("console", HERE, at, at + 10 * MINUTE)


def the_console_fails(day: Day, at: int) -> None:
    """A third of its answers are errors."""
    _hold(day, ERRORS, 2, at, day.minutes(20, 60))
    day.expect("console", HERE, at, at + 8 * MINUTE)


def a_campaign_is_forgotten(day: Day, at: int) -> None:
    """A campaign was paused a day ago."""
    _hold(day, "redrive_campaign_idle_seconds", 90_000, at, day.minutes(25, 60))
    day.expect("campaign", HERE, at, at + 15 * MINUTE)


def heals_abort(day: Day, at: int) -> None:
    """Heal tried three groups, and all died again."""
    _hold(day, "redrive_heals_aborted", 3, at, day.minutes(15, 60))
    day.expect("campaign", HERE, at, at + 5 * MINUTE)


def a_job_never_gets_its_turn(day: Day, at: int) -> None:
    """The same job has waited for a limit for more than an hour."""
    waits = {at + n: float(n * STEP) for n in range(80 * MINUTE)}
    day.server["redrive_limit_oldest_wait_seconds"] |= waits
    day.expect("limits", HERE, at, at + 65 * MINUTE)


# ------------------------------------------------- events that should not be told


def a_burst_of_connections(day: Day, at: int) -> None:
    """Nearly all connections are in use for minutes."""
    _hold(day, "redrive_pg_connections", 95, at, day.minutes(1, 9))


def a_purge_makes_room(day: Day, at: int) -> None:
    """Dead letters take most of their disk budget for minutes."""
    _hold(day, "redrive_disk_used_bytes", 8.5e9, at, day.minutes(5, 14))


def a_rollout_of_the_console(day: Day, at: int) -> None:
    """No console is there for minutes."""
    day.without_console |= set(range(at, at + day.minutes(1, 8)))


def a_few_errors_of_the_console(day: Day, at: int) -> None:
    """Its errors are a few, and end."""
    _hold(day, ERRORS, 1, at, 4)


def a_standby_is_restarted(day: Day, at: int) -> None:
    """A standby is late for minutes; meanwhile nobody reads its slot."""
    lasts = day.minutes(3, 9)
    _hold(day, "redrive_pg_replication_lag_seconds", 500, at, lasts)
    _hold(day, "redrive_pg_replication_slot_active", 0, at, lasts)
    _hold(day, "redrive_pg_replication_slot_kept_bytes", 7e9, at, lasts)


def a_slow_vacuum(day: Day, at: int) -> None:
    """Many dead rows for most of an hour."""
    _hold(day, "redrive_pg_table_dead_tuples", 6e5, at, day.minutes(20, 55))


def a_backlog_before_a_limit(day: Day, at: int) -> None:
    """Jobs wait for hours, and each gets its turn."""
    waits = {at + n: 5000.0 + n * STEP / 3 for n in range(80 * MINUTE)}
    day.server["redrive_limit_oldest_wait_seconds"] |= waits


HAPPENINGS: tuple[Callable[[Day, int], None], ...] = (
    connections_run_out,
    transaction_ids_run_out,
    freezing_falls_behind,
    dead_rows_pile_up,
    a_slot_is_left_behind,
    a_standby_is_late,
    names_run_out,
    the_disk_fills,
    the_console_is_gone,
    the_console_fails,
    a_campaign_is_forgotten,
    heals_abort,
    a_job_never_gets_its_turn,
    a_burst_of_connections,
    a_purge_makes_room,
    a_rollout_of_the_console,
    a_few_errors_of_the_console,
    a_standby_is_restarted,
    a_slow_vacuum,
    a_backlog_before_a_limit,
)


# ------------------------------------------------- series that are scraped


def exported(day: Day, put: Callable[..., None]) -> None:
    """Add the series of an exporter."""
    for name, (labels, calm) in NORMAL.items():
        values = day.server[name]
        put(name, lambda n, v=values, c=calm: v.get(n, c), **labels)


def console(made: World, day: Day) -> None:
    """Add the series of a console, which answers four requests per scrape."""

    def put(name: str, value: Callable[[int], float], **labels: str) -> None:
        made.put(
            name,
            lambda n: None if n in day.without_console else value(n),
            pod="c",
            **labels,
        )

    errors = day.server[ERRORS]
    failed = list(accumulate(errors.get(n, 0) for n in range(made.steps)))
    count = "redrive_console_request_seconds_count"
    put("redrive_console_sign_ins_total", lambda _: 0, outcome="accepted")
    put(count, lambda n: 4 * n, page="/", status="200")
    put(count, failed.__getitem__, page="/", status="500")
