"""Panels about the health of the server, and about work that waits for a decision."""

from collections.abc import Sequence

from tools.dashboards.parts import (
    BAD,
    CALM,
    GREY,
    WARN,
    WHERE,
    chart,
    query,
    rate,
    same,
    total,
)


def by(metric: str, label: str) -> str:
    """Return a gauge of the database by one label."""
    return f"max by ({label}) ({same(metric, label, where=WHERE)})"


def server() -> list:
    """Return the panels about the server: what runs out, and what falls behind."""
    return [*capacity(), *freezing(), *replication(), *gateway()]


def capacity() -> list:
    """Return the panels about what runs out."""
    used = by("redrive_pg_connections", "scope")
    available = by("redrive_pg_connections_available", "scope")
    return [
        chart(
            "Connections",
            "Connections in use, and as many as there may be. Nobody can connect at the limit.",
            "short",
            query(used, "{{scope}}: used"),
            query(available, "{{scope}}: available"),
            alerts=("RedriveConnectionsNearlyUsedUp",),
            width=6,
        ),
        chart(
            "Database size",
            "Of the database, and of Redrive's tables and indexes in it by vacuum's last estimate.",
            "bytes",
            query(f"max(redrive_pg_database_size_bytes{{{WHERE}}})", "database"),
            query(f"max(redrive_pg_schema_size_bytes{{{WHERE}}})", "Redrive"),
            colors={"database": GREY, "Redrive": CALM},
            width=6,
        ),
        chart(
            "Sequences and names",
            "Share of the numbers that each sequence has used, and of the allowed names in use.",
            "percentunit",
            query(by("redrive_pg_sequence_used_ratio", "sequence"), "{{sequence}}"),
            query(by("redrive_names_used_ratio", "names"), "names of {{names}}"),
            alerts=("RedriveSequenceNearlyUsedUp", "RedriveNamesNearlyUsedUp"),
            width=6,
        ),
        chart(
            "Disk budget",
            "Of dead letters with their failures and of the history, by vacuum's last estimate.",
            "bytes",
            query(by("redrive_disk_used_bytes", "what"), "{{what}}"),
            query(f"max(redrive_disk_budget_bytes{{{WHERE}}})", "budget"),
            alerts=("RedriveDiskBudgetNearlyUsedUp",),
            width=6,
        ),
        chart(
            "Console: answers by status",
            "Per second. 5xx: the console or the database failed.",
            "ops",
            query(
                rate("redrive_console_request_seconds_count", "status", where=WHERE),
                "{{status}}",
            ),
            stacked=True,
            alerts=("RedriveConsoleFailing", "RedriveConsoleDown"),
            width=6,
        ),
    ]


def gateway() -> list:
    """Return the panels about the dead letter queues of other systems."""
    taken_in = ("taken", "possible_duplicates", "refused", "known")
    sent_back = ("sent", "sent_again", "returned", "returned_late")
    return [
        chart(
            "Gateway: messages that wait",
            "Messages in the dead letter queue of each source.",
            "short",
            query(by("redrive_gateway_waiting", "source"), "{{source}}"),
            alerts=("RedriveGatewayStalled",),
            width=6,
        ),
        chart(
            "Gateway: messages taken in",
            "Per second. taken: new dead letters. known: they were there before.",
            "ops",
            *_of_sources(taken_in),
            alerts=("RedriveGatewayDeadLettersGrow",),
            width=6,
        ),
        chart(
            "Gateway: messages sent back",
            "Per second. returned: they died again. sent again: a confirmation was lost.",
            "ops",
            *_of_sources(sent_back),
            width=6,
        ),
        chart(
            "Gateway: lost connections",
            "To the source or to the database, per second.",
            "ops",
            query(
                rate("redrive_gateway_errors_total", "source", where=WHERE),
                "{{source}}",
            ),
            alerts=("RedriveGatewayStalled",),
            width=6,
        ),
    ]


def _of_sources(counts: Sequence[str]) -> list:
    """Return a query for each of these counts of the gateway."""
    return [
        query(
            rate(f"redrive_gateway_{name}_total", "source", where=WHERE),
            f"{{{{source}}}}: {name.replace('_', ' ')}",
        )
        for name in counts
    ]


def freezing() -> list:
    """Return the panels about vacuum."""
    age = same("redrive_pg_freeze_age", "counter", "scope", where=WHERE)
    return [
        chart(
            "Freeze age",
            "Age of the oldest id that is not frozen, and the age at which autovacuum begins in"
            " any case. Postgres accepts no writes at 2.1 billion.",
            "short",
            query(f"max by (counter) ({age})", "{{counter}}"),
            query(by("redrive_pg_freeze_max_age", "counter"), "{{counter}}: begins"),
            alerts=("RedriveFreezingFallsBehind", "RedriveWraparoundNear"),
            width=6,
        ),
        chart(
            "Vacuum horizon",
            "Transactions since the oldest row that vacuum must keep, by what keeps it.",
            "short",
            query(by("redrive_pg_horizon_age_transactions", "holder"), "{{holder}}"),
            alerts=("RedriveVacuumFallsBehind", "RedriveLongTransactionHoldsVacuum"),
            width=6,
        ),
        chart(
            "Dead rows by their limit",
            "Dead rows, as a multiple of the number at which autovacuum begins.",
            "short",
            query(
                f"{by('redrive_pg_table_dead_tuples', 'table')}"
                f" / {by('redrive_pg_table_vacuum_threshold', 'table')}",
                "{{table}}",
            ),
            alerts=("RedriveVacuumFallsBehind",),
            width=6,
        ),
        chart(
            "Last vacuum",
            "Time since each table was last vacuumed, by hand or by autovacuum.",
            "s",
            query(by("redrive_pg_table_vacuum_age_seconds", "table"), "{{table}}"),
            alerts=("RedriveVacuumFallsBehind",),
            width=6,
        ),
    ]


def replication() -> list:
    """Return the panels about standbys and slots."""
    return [
        chart(
            "Replication lag",
            "Delay of each standby.",
            "s",
            query(by("redrive_pg_replication_lag_seconds", "standby"), "{{standby}}"),
            alerts=("RedriveReplicaLags",),
            width=6,
        ),
        chart(
            "Replication lag in bytes",
            "WAL that each standby has not applied.",
            "bytes",
            query(by("redrive_pg_replication_lag_bytes", "standby"), "{{standby}}"),
            alerts=("RedriveReplicaLags",),
            width=6,
        ),
        chart(
            "WAL kept for slots",
            "WAL that the server keeps until the receiver of the slot has read it.",
            "bytes",
            query(by("redrive_pg_replication_slot_kept_bytes", "slot"), "{{slot}}"),
            alerts=("RedriveReplicationSlotKeepsWal",),
            width=6,
        ),
        chart(
            "Slots without a receiver",
            "Replication slots that nobody uses.",
            "short",
            query(
                total(f"{by('redrive_pg_replication_slot_active', 'slot')} == bool 0"),
                "unused",
            ),
            colors={"unused": WARN},
            alerts=("RedriveReplicationSlotKeepsWal",),
            width=6,
        ),
    ]


def neglect() -> list:
    """Return the panels about work that waits for a decision."""
    return [
        chart(
            "Campaigns that wait",
            "Time since the last step of a campaign that was paused, or aborted, and has dead"
            " letters left.",
            "s",
            query(by("redrive_campaign_idle_seconds", "state"), "{{state}}"),
            colors={"paused": CALM, "aborted": BAD},
            alerts=("RedriveCampaignForgotten",),
        ),
        chart(
            "Heals that aborted",
            "Campaigns of heal that aborted in the last day: the deploy did not fix the cause.",
            "short",
            query(f"max(redrive_heals_aborted{{{WHERE}}})", "aborted"),
            colors={"aborted": BAD},
            alerts=("RedriveHealKeepsFailing",),
        ),
        chart(
            "Longest wait for a limit",
            "How long the job has waited that has waited longest for each limit.",
            "s",
            query(by("redrive_limit_oldest_wait_seconds", "limit"), "{{limit}}"),
            alerts=("RedriveLimitStarvesJobs",),
        ),
    ]
