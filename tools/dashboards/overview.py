"""The first dashboard for an engineer on call: is all well, and if not, where?"""

from tools.dashboards.parts import (
    ALERTS,
    BAD,
    CALM,
    DEAD_LETTERS_OF_ROW,
    DEAD_LETTERS_OF_SERIES,
    GOOD,
    GREY,
    OUTCOMES,
    QUEUE,
    QUEUE_OR_ALL,
    STATES,
    WARN,
    WHERE,
    Board,
    board,
    chart,
    figure,
    fill,
    grown_per_second,
    heat,
    now,
    objective,
    or_zero,
    quantile,
    query,
    rate,
    rows,
    same,
    total,
)
from tools.dashboards.server import neglect, server

ATTEMPTS = "redrive_job_attempts_total"
DIED = rate(ATTEMPTS, "queue", where=f'{QUEUE}, outcome="dead"')
ENDED = rate(ATTEMPTS, "queue", where=f'{QUEUE}, outcome=~"dead|succeeded"')


def depth(state: str) -> str:
    """Return a query for the jobs in a state, by queue."""
    return same("redrive_queue_depth", "queue", where=f'{QUEUE}, state="{state}"')


def build(*, show_cluster: bool = False) -> Board:
    """Build the dashboard."""
    made = board(
        "redrive-overview",
        "Redrive / Overview",
        "All queues: what is waiting, what fails, what has died, and whether workers and database"
        " keep up.",
        show_cluster=show_cluster,
    )
    return fill(
        made,
        *figures(),
        queues(),
        Jobs=jobs(),
        Dead_letters=dead_letters(),
        Backlog_and_wait=backlog(),
        Workers=workers(),
        Database_and_maintenance=database(),
        Server=server(),
        Waiting_for_a_decision=neglect(),
    )


def figures() -> list:
    """Return the panels of the first line."""
    return [
        figure(
            "Alerts firing",
            "Alerts of Redrive that fire now.",
            "short",
            f"count({ALERTS}) or vector(0)",
            steps=((None, GOOD), (1, BAD)),
        ),
        figure(
            "Ready",
            "Jobs that are due and wait for a worker.",
            "short",
            or_zero(total(depth("ready"))),
            alerts=(
                "RedriveQueueWaitTooLong",
                "RedriveQueueUnserved",
                "RedriveQueueStalled",
            ),
        ),
        figure(
            "Running",
            "Jobs in the hands of workers.",
            "short",
            or_zero(total(depth("running"))),
            steps=((None, GOOD),),
        ),
        figure(
            "Retrying",
            "Jobs that failed and wait for their next attempt.",
            "short",
            or_zero(total(depth("retrying"))),
            steps=((None, WARN),),
            alerts=("RedriveKindFailing",),
        ),
        figure(
            "Dead letters",
            "Open dead letters: failed for good, waiting for somebody to decide.",
            "short",
            or_zero(total(same("redrive_dlq_depth", "queue", "reason"))),
            steps=((None, GOOD), (1, WARN)),
            alerts=("RedriveDeadLettersUnattended",),
        ),
        figure(
            "Added per minute",
            "Dead letters added in the last full minute, as the database counted them.",
            "cpm",
            or_zero(total(same("redrive_dlq_added_per_minute", "queue"))),
            steps=((None, GOOD), (1, BAD)),
            alerts=(
                "RedriveDeadLettersGrowingFast",
                "RedriveDeadLettersGrowingSteadily",
            ),
        ),
        figure(
            "Oldest wait",
            "How long the oldest ready job has been due.",
            "s",
            or_zero(f"max(redrive_queue_oldest_ready_age_seconds{{{QUEUE}}})"),
            alerts=("RedriveQueueWaitTooLong",),
        ),
        figure(
            "Workers",
            "Workers whose heartbeat is heard.",
            "short",
            or_zero(total(same("redrive_workers", where=WHERE))),
            steps=((None, BAD), (1, GOOD)),
            alerts=("RedriveWorkersNotRescued",),
        ),
    ]


def queues() -> object:
    """Return a table with a row for each queue."""
    attention = ((None, "text"), (1, BAD))
    return rows(
        "Queues",
        "Each queue at this moment. Follow its name to its dead letters.",
        {
            "Ready": (now(f"sum by (queue) ({depth('ready')})"), "short"),
            "Scheduled": (now(f"sum by (queue) ({depth('scheduled')})"), "short"),
            "Retrying": (now(f"sum by (queue) ({depth('retrying')})"), "short"),
            "Running": (now(f"sum by (queue) ({depth('running')})"), "short"),
            "Completed": (now(grown_per_second("jobs_completed", "queue")), "ops"),
            "Oldest ready": (
                now(
                    f"max by (queue) (redrive_queue_oldest_ready_age_seconds{{{QUEUE}}})"
                ),
                "s",
            ),
            "Dead letters": (
                now(total(same("redrive_dlq_depth", "queue", "reason"), "queue")),
                "short",
            ),
            "Added per minute": (
                now(total(same("redrive_dlq_added_per_minute", "queue"), "queue")),
                "cpm",
            ),
            "Paused": (
                now(f"max by (queue) (redrive_queue_paused{{{QUEUE}}})"),
                "bool_yes_no",
            ),
        },
        labels={"queue": "Queue"},
        sort_by="Dead letters",
        links_to=DEAD_LETTERS_OF_ROW,
        colors={
            "Dead letters": ((None, "text"), (1, WARN)),
            "Added per minute": attention,
            "Paused": attention,
        },
    )


def jobs() -> list:
    """Return the panels about jobs: rate, errors, duration."""
    return [
        chart(
            "Attempts by outcome",
            "Attempts that ended, each once, in every worker.",
            "ops",
            query(rate(ATTEMPTS, "outcome"), "{{outcome}}"),
            colors=OUTCOMES,
            stacked=True,
        ),
        chart(
            "Share of jobs that die",
            "Of the jobs that ended, the share that became dead letters, by queue. Dashed: the"
            " objective dead_ratio; a page comes at 14.4 times of it over an hour.",
            "percentunit",
            query(f"({DIED} or 0 * {ENDED}) / ({ENDED} > 0)", "{{queue}}"),
            objective("dead_ratio"),
            alerts=(
                "RedriveDeadLetterBudgetBurningFast",
                "RedriveDeadLetterBudgetBurningSlowly",
            ),
            links_to=DEAD_LETTERS_OF_SERIES,
        ),
        chart(
            "Time in the handler",
            "Quantiles over all attempts that ended.",
            "s",
            query(quantile(0.5, "redrive_job_duration_seconds"), "p50"),
            query(quantile(0.95, "redrive_job_duration_seconds"), "p95"),
            query(
                quantile(0.99, "redrive_job_duration_seconds"), "p99", exemplars=True
            ),
            colors={"p50": GOOD, "p95": WARN, "p99": BAD},
        ),
        chart(
            "Enqueued and completed",
            "Counted by the database in the transactions themselves. Enqueued above completed: the"
            " backlog grows.",
            "ops",
            query(grown_per_second("jobs_enqueued"), "enqueued"),
            query(grown_per_second("jobs_completed"), "completed"),
            colors={"enqueued": CALM, "completed": GOOD},
            width=6,
        ),
        chart(
            "Retries by reason",
            "Attempts that will be tried again. throttled: a limit; transient: an outage; auth: a"
            " credential.",
            "ops",
            query(rate("redrive_job_retries_total", "reason"), "{{reason}}"),
            stacked=True,
            alerts=("RedriveKindFailing",),
            width=6,
        ),
        chart(
            "Breakers",
            "1 while the breaker of a dependency is open or half open. Jobs that depend on it are"
            " put off, not failed.",
            "short",
            query(
                same(
                    "redrive_circuit_breaker_state",
                    "breaker",
                    "state",
                    where=f'{WHERE}, state=~"open|half_open"',
                ),
                "{{breaker}} {{state}}",
            ),
            most=1,
            alerts=("RedriveCircuitBreakerOpen",),
            width=6,
        ),
        chart(
            "Released by reason",
            "Jobs given back with their attempt: a worker that stops, a kind it does not know.",
            "ops",
            query(rate("redrive_jobs_released_total", "reason"), "{{reason}}"),
            stacked=True,
            width=6,
        ),
    ]


def dead_letters() -> list:
    """Return the panels about dead letters."""
    return [
        chart(
            "Added per minute by reason",
            "When it started, and what kind of trouble it is.",
            "cpm",
            query(f"60 * ({grown_per_second('dlq_added', 'reason')})", "{{reason}}"),
            stacked=True,
            alerts=(
                "RedriveDeadLettersGrowingFast",
                "RedriveDeadLetterOnCriticalQueue",
            ),
        ),
        added_within(
            "5m", "5 minutes", "dlq_added_5m", "RedriveDeadLettersGrowingFast"
        ),
        chart(
            "Open dead letters",
            "By queue. Its size pages nobody: growth and age do.",
            "short",
            query(
                total(same("redrive_dlq_depth", "queue", "reason"), "queue"),
                "{{queue}}",
            ),
            stacked=True,
            links_to=DEAD_LETTERS_OF_SERIES,
        ),
    ]


def added_within(
    window: str, words: str, threshold: str, alert: str, *, width: int = 8
) -> object:
    """Return a panel of growth against its objective.

    It shows the number that the alert compares, or an estimate if its rules are
    missing.
    """
    counted = f"increase(redrive_dlq_added_total{{{QUEUE}}}[{window}])"
    estimate = f"sum by (queue) (max by (cluster, cell, namespace, job, queue, kind, reason) ({counted}))"
    return chart(
        f"Added within {words}",
        f"By queue, over the {words} before each instant. Dashed: the objective {threshold}; above"
        " it the alert fires. The number is the alert's own; where the recording rules are not"
        " loaded, an estimate from the counter.",
        "short",
        query(
            f"sum by (queue) (redrive:dlq_added:increase{window}{{{QUEUE}}}) or {estimate}",
            "{{queue}}",
        ),
        objective(threshold),
        alerts=(alert,),
        links_to=DEAD_LETTERS_OF_SERIES,
        width=width,
    )


def backlog() -> list:
    """Return the panels about waiting jobs and their waiting time."""
    return [
        chart(
            "Backlog by state",
            "Jobs that live. retrying: failed, waiting for the next attempt.",
            "short",
            query(
                total(same("redrive_queue_depth", "queue", "state"), "state"),
                "{{state}}",
            ),
            colors=STATES,
            stacked=True,
            alerts=("RedriveQueueUnserved", "RedriveQueueStalled"),
        ),
        chart(
            "Oldest ready job",
            "How long it has been due, by queue: what users feel. Dashed: the objective"
            " ready_age_seconds.",
            "s",
            query(
                f"max by (queue) (redrive_queue_oldest_ready_age_seconds{{{QUEUE}}})",
                "{{queue}}",
            ),
            objective("ready_age_seconds"),
            alerts=("RedriveQueueWaitTooLong",),
        ),
        chart(
            "Oldest retrying job",
            "How long ago its first failure was, by queue. If it grows with the clock, retries do"
            " not help.",
            "s",
            query(
                f"max by (queue) (redrive_queue_retrying_age_seconds{{{QUEUE}}})",
                "{{queue}}",
            ),
            alerts=("RedriveRetryingTooLong",),
        ),
        heat(
            "Wait until claimed",
            "From the moment a job was due to the moment a worker took it.",
            rate("redrive_job_wait_seconds_bucket", "le"),
            alerts=("RedriveQueueWaitTooLong",),
        ),
    ]


def workers() -> list:
    """Return the panels about workers: use, saturation, errors."""
    slots, busy = (
        f"sum by (cluster, cell, namespace, job) (redrive_worker_slots{which}{{{WHERE}}})"
        for which in ("", "_busy")
    )
    return [
        chart(
            "Slots busy",
            "Share of the places for jobs that are taken. 100 %: workers are the limit.",
            "percentunit",
            query(f"sum({busy}) / sum({slots} > 0)", "busy"),
            most=1,
            colors={"busy": GOOD},
            alerts=("RedriveQueueWaitTooLong", "RedriveQueueStalled"),
            width=6,
        ),
        chart(
            "Workers by queue",
            "Workers that serve each queue; *: all queues.",
            "short",
            query(f"sum by (queue) (redrive_worker_up{{{QUEUE_OR_ALL}}})", "{{queue}}"),
            alerts=("RedriveQueueUnserved",),
            width=6,
        ),
        chart(
            "Workers alive and lost",
            "alive: their heartbeat is heard. lost: silent, and their jobs not taken back yet;"
            " that takes 5 seconds.",
            "short",
            query(total(same("redrive_workers", where=WHERE)), "alive"),
            query(total(same("redrive_workers_lost", where=WHERE)), "lost"),
            colors={"alive": GOOD, "lost": BAD},
            alerts=("RedriveWorkersNotRescued",),
            width=6,
        ),
        chart(
            "Unhandled jobs",
            "Due jobs of a kind that no live worker of their queue has a handler for: they wait.",
            "short",
            query(
                total(same("redrive_jobs_unhandled", "queue", "kind"), "kind"),
                "{{kind}}",
            ),
            stacked=True,
            alerts=("RedriveJobsUnhandled",),
            width=6,
        ),
    ]


def database() -> list:
    """Return the panels about the database.

    They show causes of slow queues in Postgres, and whether the figures can be trusted.
    """
    return [*answers(), *upkeep()]


def answers() -> list:
    """Return the panels about the database's latency and its refusals."""
    return [
        chart(
            "Claim p99",
            "One round trip of settling and claiming a batch.",
            "s",
            query(
                quantile(0.5, "redrive_exchange_duration_seconds", where=WHERE), "p50"
            ),
            query(
                quantile(0.99, "redrive_exchange_duration_seconds", where=WHERE), "p99"
            ),
            colors={"p50": GOOD, "p99": WARN},
            alerts=("RedriveQueueWaitTooLong",),
            width=6,
        ),
        chart(
            "Database errors by sqlstate",
            "57P01 and none: restart or failover; 53300: out of connections; 40P01:"
            " deadlock; 57014: timeout; 42501: rights.",
            "ops",
            query(
                rate("redrive_db_errors_total", "sqlstate", where=WHERE), "{{sqlstate}}"
            ),
            stacked=True,
            alerts=("RedriveDatabaseErrors",),
            width=6,
        ),
        chart(
            "Chores that fail",
            "What workers do for one another: rescue takes jobs back from lost workers, fold and"
            " sample keep the counters, unpark wakes ordering keys.",
            "ops",
            query(
                rate("redrive_maintenance_failures_total", "chore", where=WHERE),
                "{{chore}}",
            ),
            colors={"rescue": BAD},
            stacked=True,
            alerts=("RedriveChoresFailing",),
            width=6,
        ),
        chart(
            "Oldest transaction",
            "The oldest that holds vacuum back. From half an hour on, claims get slower.",
            "s",
            query(
                f"max(redrive_pg_oldest_transaction_age_seconds{{{WHERE}}})", "oldest"
            ),
            colors={"oldest": WARN},
            alerts=("RedriveLongTransactionHoldsVacuum",),
            width=6,
        ),
        chart(
            "Exchanges beside their usual",
            "How often the usual duration the slowest worker's exchanges take. 1: they are not"
            " slow. redrive check names the session that may be the cause.",
            "short",
            query(f"max(redrive_worker_exchange_slowdown_ratio{{{WHERE}}})", "times"),
            colors={"times": WARN},
            alerts=("RedriveDatabaseSlow",),
            width=6,
        ),
        chart(
            "Statistics: age and duration",
            "How old the figures are by Prometheus's clock, and how long reading them took. Figures"
            " that are old by the database's clock are not shown.",
            "s",
            query(f"time() - max(redrive_stats_timestamp_seconds{{{WHERE}}})", "age"),
            query(f"max(redrive_stats_duration_seconds{{{WHERE}}})", "duration"),
            colors={"age": CALM, "duration": GREY},
            alerts=("RedriveMetricsStale", "RedriveMetricsAbsent"),
            width=6,
        ),
        chart(
            "Schedules: lateness",
            "How late the slot is that has waited longest. Workers look once a second; redrive"
            " schedule ls names it.",
            "s",
            query(f"max(redrive_schedule_overdue_seconds{{{WHERE}}})", "lateness"),
            colors={"lateness": WARN},
            alerts=("RedriveScheduleOverdue",),
            width=6,
        ),
    ]


def upkeep() -> list:
    """Return the panels about cleanup of deleted rows, and about chores."""
    successes = same(
        "redrive_maintenance_last_success_timestamp_seconds", "task", where=WHERE
    )
    expected = same(
        "redrive_maintenance_expected_timestamp_seconds", "task", where=WHERE
    )
    since = f"({expected} > {successes} or {successes} > 0)"
    interval = same("redrive_maintenance_interval_seconds", "task", where=WHERE)
    return [
        chart(
            "Dead tuples",
            "Rows that vacuum has not taken away yet, by table.",
            "short",
            query(
                total(
                    same("redrive_pg_table_dead_tuples", "table", where=WHERE), "table"
                ),
                "{{table}}",
            ),
            alerts=("RedriveLongTransactionHoldsVacuum",),
            width=6,
        ),
        chart(
            "Table sizes",
            "With indexes.",
            "bytes",
            query(
                total(
                    same("redrive_pg_table_size_bytes", "table", where=WHERE), "table"
                ),
                "{{table}}",
            ),
            stacked=True,
            width=6,
        ),
        chart(
            "Maintenance",
            "Time since each task last succeeded, or was first expected, in its own intervals."
            " From 3 on the alert fires.",
            "short",
            query(
                f"(time() - {since}) / on ({'cluster, cell, namespace, job, task'}) {interval}",
                "{{task}}",
            ),
            alerts=("RedriveMaintenanceOverdue",),
            width=6,
        ),
        chart(
            "Processes that read the database",
            "Exporters and workers whose last reading worked, of all.",
            "short",
            query(f"sum(redrive_stats_up{{{WHERE}}})", "read it"),
            query(f"count(redrive_stats_up{{{WHERE}}})", "all"),
            colors={"read it": GOOD, "all": GREY},
            alerts=("RedriveMetricsAbsent",),
            width=6,
        ),
    ]
