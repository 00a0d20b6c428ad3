"""The dashboard about each worker: which one hangs, dies or is new."""

from tools.dashboards.parts import (
    BAD,
    CALM,
    GOOD,
    GREY,
    INSTANCE,
    INSTANCE_QUEUE,
    OUTCOMES,
    QUEUE_OR_ALL,
    THRESHOLD,
    VIOLET,
    WARN,
    Board,
    board,
    chart,
    figure,
    fill,
    heat,
    now,
    quantile,
    query,
    rate,
    rows,
)

UP = f'{QUEUE_OR_ALL}, instance=~"$instance"'


def build(*, show_cluster: bool = False) -> Board:
    """Build the dashboard."""
    made = board(
        "redrive-worker",
        "Redrive / Worker",
        "The workers one by one: slots, attempts, claims, runners that died, jobs that were lost.",
        show_cluster=show_cluster,
        with_instance=True,
    )
    return fill(
        made,
        *figures(),
        Work=work(),
        Claims=claims(),
        Trouble=trouble(),
        Who_is_who=who(),
    )


def figures() -> list:
    """Return the panels of the first line."""
    busy, slots = (
        f"sum(redrive_worker_slots_busy{{{INSTANCE}}})",
        f"sum(redrive_worker_slots{{{INSTANCE}}})",
    )
    return [
        figure(
            "Workers",
            "That are scraped.",
            "short",
            f"count(redrive_worker_slots{{{INSTANCE}}}) or vector(0)",
            steps=((None, BAD), (1, GOOD)),
            alerts=("RedriveQueueUnserved",),
            width=4,
        ),
        figure(
            "Slots",
            "Jobs they can run at once.",
            "short",
            f"{slots} or vector(0)",
            width=4,
        ),
        figure(
            "Busy",
            "Share of the slots that are taken.",
            "percentunit",
            f"{busy} / ({slots} > 0) or vector(0)",
            width=4,
            steps=((None, GOOD), (0.9, WARN)),
        ),
        figure(
            "In flight",
            "Jobs in their hands.",
            "short",
            f"sum(redrive_jobs_inflight{{{INSTANCE_QUEUE}}}) or vector(0)",
            width=4,
        ),
        figure(
            "Draining",
            "Workers that finish what they have and then stop.",
            "short",
            f"sum(redrive_worker_draining{{{INSTANCE}}}) or vector(0)",
            steps=((None, GOOD), (1, WARN)),
            width=4,
        ),
        figure(
            "Versions",
            "Of workers and exporters. More than one: a rollout, or one that is stuck.",
            "short",
            f"count(count by (version) (redrive_build_info{{{INSTANCE}}})) or vector(0)",
            steps=((None, GOOD), (2, WARN)),
            alerts=("RedriveVersionSkew",),
            width=4,
        ),
    ]


def work() -> list:
    """Return the panels about the work of workers."""
    busy, slots = (
        f"sum by (instance) (redrive_worker_slots{which}{{{INSTANCE}}})"
        for which in ("_busy", "")
    )
    attempts, duration = "redrive_job_attempts_total", "redrive_job_duration_seconds"
    return [
        chart(
            "Slots busy",
            "Share taken, by worker. All busy and nothing ends: handlers hang. None busy: claims"
            " fail.",
            "percentunit",
            query(f"{busy} / ({slots} > 0)", "{{instance}}"),
            most=1,
            alerts=("RedriveQueueStalled",),
        ),
        chart(
            "In flight by kind",
            "Jobs in their hands.",
            "short",
            query(
                f"sum by (kind) (redrive_jobs_inflight{{{INSTANCE_QUEUE}}})", "{{kind}}"
            ),
            stacked=True,
        ),
        chart(
            "Attempts by worker",
            "Attempts that ended.",
            "ops",
            query(rate(attempts, "instance", where=INSTANCE_QUEUE), "{{instance}}"),
            stacked=True,
        ),
        chart(
            "Attempts by outcome",
            "Attempts that ended, each once.",
            "ops",
            query(rate(attempts, "outcome", where=INSTANCE_QUEUE), "{{outcome}}"),
            colors=OUTCOMES,
            stacked=True,
        ),
        chart(
            "Time in the handler p95, by kind",
            "Of attempts that ended.",
            "s",
            query(
                quantile(0.95, duration, "kind", where=INSTANCE_QUEUE),
                "{{kind}}",
                exemplars=True,
            ),
        ),
        heat(
            "Time in the handler",
            "All attempts that ended.",
            rate(f"{duration}_bucket", "le", where=INSTANCE_QUEUE),
        ),
        memory(),
    ]


def memory() -> object:
    """Return the panel about memory.

    Most of it belongs to handlers; a worker itself takes little.
    """
    itself, runners, limit = (
        f"max by (instance) ({name}{{{INSTANCE}}})"
        for name in (
            "process_resident_memory_bytes",
            "redrive_runners_resident_memory_bytes",
            "redrive_memory_limit_bytes",
        )
    )
    return chart(
        "Memory",
        "Resident memory of each worker and its runners; what they share counts for each. Dashed:"
        " the limit of its container, past which the kernel kills.",
        "bytes",
        query(f"{itself} + on (instance) {runners}", "{{instance}}"),
        query(limit, "limit of {{instance}}").ref_id(THRESHOLD),
        alerts=("RedriveRunnersDying",),
        width=24,
    )


def claims() -> list:
    """Return the panels about claims."""
    exchange = "redrive_exchange_duration_seconds"
    return [
        chart(
            "Exchange p99",
            "One round trip of settling and claiming, by worker. A worker apart from the others:"
            " its node or its network.",
            "s",
            query(quantile(0.99, exchange, "instance", where=INSTANCE), "{{instance}}"),
            alerts=("RedriveJobsLost",),
            width=6,
        ),
        chart(
            "Exchange age",
            "For how long no exchange of a worker has succeeded. It grows for all workers: the"
            " database holds them up. For one worker: its node or its network.",
            "s",
            query(
                f"max by (instance) (redrive_worker_exchange_age_seconds{{{INSTANCE}}})",
                "{{instance}}",
            ),
            alerts=("RedriveNothingMoves",),
            width=6,
        ),
        chart(
            "Claims by result",
            "hit: it brought jobs; empty: nothing was due; error: the database refused or was"
            " gone.",
            "ops",
            query(rate("redrive_claims_total", "result", where=INSTANCE), "{{result}}"),
            colors={"hit": GOOD, "empty": GREY, "error": BAD},
            stacked=True,
            width=6,
        ),
        chart(
            "Database errors",
            "By operation.",
            "ops",
            query(
                rate("redrive_db_errors_total", "operation", where=INSTANCE),
                "{{operation}}",
            ),
            stacked=True,
            alerts=("RedriveDatabaseErrors",),
            width=6,
        ),
    ]


def trouble() -> list:
    """Return the panels about failures that should not happen."""
    return [
        chart(
            "Jobs lost and rescued",
            "lost: dropped by a worker that was declared lost and was not, so they may run twice."
            " rescued: taken back from workers that are gone.",
            "ops",
            query(rate("redrive_jobs_lost_total", where=INSTANCE), "lost"),
            query(rate("redrive_jobs_rescued_total", where=INSTANCE), "rescued"),
            colors={"lost": BAD, "rescued": CALM},
            alerts=("RedriveJobsLost", "RedriveWorkersNotRescued"),
            width=6,
        ),
        chart(
            "Settlements refused",
            "The job was no longer this worker's: fencing at work.",
            "ops",
            query(
                rate("redrive_stale_settlements_total", "queue", where=INSTANCE_QUEUE),
                "{{queue}}",
            ),
            stacked=True,
            alerts=("RedriveJobsLost",),
            width=6,
        ),
        chart(
            "Runner deaths by cause",
            "deadline: killed because its job was over time; signal: a crash or out of memory;"
            " exit: it left by itself.",
            "ops",
            query(
                rate("redrive_runner_deaths_total", "cause", where=INSTANCE),
                "{{cause}}",
            ),
            colors={"deadline": WARN, "signal": BAD, "exit": VIOLET},
            stacked=True,
            alerts=("RedriveRunnersDying",),
            width=6,
        ),
        chart(
            "Released by reason",
            "Jobs given back with their attempt.",
            "ops",
            query(
                rate(
                    "redrive_jobs_released_total",
                    "reason",
                    where=f'{INSTANCE}, queue=~"$queue"',
                ),
                "{{reason}}",
            ),
            stacked=True,
            width=6,
        ),
    ]


def who() -> list:
    """Return the panels about versions and places of workers."""
    labels = {"instance": "Process", "version": "Redrive", "python_version": "Python"}
    return [
        rows(
            "Versions",
            "What each worker and exporter runs.",
            {
                "": (
                    now(
                        f"max by ({', '.join(labels)}) (redrive_build_info{{{INSTANCE}}})"
                    ),
                    "short",
                )
            },
            labels=labels,
            sort_by="Redrive",
            alerts=("RedriveVersionSkew",),
            width=12,
        ),
        rows(
            "Queues of workers",
            "What each worker serves; *: every queue.",
            {
                "": (
                    now(f"max by (instance, queue) (redrive_worker_up{{{UP}}})"),
                    "short",
                )
            },
            labels={"instance": "Worker", "queue": "Queue"},
            sort_by="Worker",
            alerts=("RedriveQueueUnserved",),
            width=12,
        ),
    ]
