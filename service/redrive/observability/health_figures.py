"""Metric families about the server, and about work that somebody has left behind.

A family has no values if the database may not show them, or shows none.
"""

from collections.abc import Callable

from redrive.observability.families import Figure, Labels, Values
from redrive.observability.snapshot import Health, Snapshot


def _figure(
    name: str, about: str, labels: Labels, values: Callable[[Health], Values]
) -> Figure:
    """Make a family that has no values while the snapshot has no health."""

    def shown(snapshot: Snapshot) -> Values:
        if snapshot.health is None:
            return {}
        return values(snapshot.health)

    return Figure(name=name, help=about, labels=labels, values=shown)


HEALTH_FIGURES = (
    _figure(
        "redrive_pg_connections",
        "Connections in use, of the whole server or of this database.",
        ("scope",),
        lambda h: {(c.scope,): c.used for c in h.connections},
    ),
    _figure(
        "redrive_pg_connections_available",
        "Connections that may be in use, without the reserved ones.",
        ("scope",),
        lambda h: {(c.scope,): c.available for c in h.connections},
    ),
    _figure(
        "redrive_pg_horizon_age_transactions",
        "Transactions since vacuum's horizon, by what holds it back.",
        ("holder",),
        lambda h: {(holder,): age for holder, age in h.horizons.items()},
    ),
    _figure(
        "redrive_pg_long_transaction_age_seconds",
        "Age of the oldest transaction that holds back vacuum, if above five minutes.",
        ("session", "login", "application"),
        lambda h: {
            (t.session, t.login, t.application): t.seconds
            for t in [h.oldest_transaction]
            if t is not None
        },
    ),
    _figure(
        "redrive_pg_freeze_age",
        "Age of the oldest transaction or multixact id that is not frozen.",
        ("counter", "scope"),
        lambda h: {(f.counter, f.scope): f.age for f in h.freeze},
    ),
    _figure(
        "redrive_pg_freeze_max_age",
        "Age at which autovacuum begins to freeze in any case.",
        ("counter",),
        lambda h: {(counter,): age for counter, age in h.freeze_at.items()},
    ),
    _figure(
        "redrive_pg_table_vacuum_threshold",
        "Dead rows at which autovacuum begins to clean the table.",
        ("table",),
        lambda h: {(t.table,): t.threshold for t in h.tables},
    ),
    _figure(
        "redrive_pg_table_vacuum_age_seconds",
        "Time since the table was last vacuumed; absent if it never was.",
        ("table",),
        lambda h: {(t.table,): t.seconds for t in h.tables if t.seconds is not None},
    ),
    _figure(
        "redrive_pg_replication_lag_bytes",
        "WAL that the standby has not applied.",
        ("standby",),
        lambda h: {(s.name,): s.lag_bytes for s in h.standbys},
    ),
    _figure(
        "redrive_pg_replication_lag_seconds",
        "Delay of the standby.",
        ("standby",),
        lambda h: {(s.name,): s.lag_seconds for s in h.standbys},
    ),
    _figure(
        "redrive_pg_replication_slot_kept_bytes",
        "WAL that the server keeps for the replication slot.",
        ("slot",),
        lambda h: {(s.name,): s.kept_bytes for s in h.slots},
    ),
    _figure(
        "redrive_pg_replication_slot_active",
        "1 while a receiver uses the replication slot, else 0.",
        ("slot",),
        lambda h: {(s.name,): s.is_active for s in h.slots},
    ),
    _figure(
        "redrive_pg_database_size_bytes",
        "Size of the database.",
        (),
        lambda h: {} if h.database_size is None else {(): h.database_size},
    ),
    _figure(
        "redrive_pg_schema_size_bytes",
        "Size of Redrive's tables and indexes, as vacuum last estimated it.",
        (),
        lambda h: {(): h.schema_size},
    ),
    _figure(
        "redrive_disk_used_bytes",
        "Size of dead letters with their failures, and of the history, as vacuum last"
        " estimated it.",
        ("what",),
        lambda h: {(what,): size for what, size in h.disk.items()},
    ),
    _figure(
        "redrive_pg_sequence_used_ratio",
        "Share of the sequence's values that is used.",
        ("sequence",),
        lambda h: {(name,): share for name, share in h.sequences.items()},
    ),
    _figure(
        "redrive_names_used_ratio",
        "Share of the allowed names of queues, or of kinds, that is in use.",
        ("names",),
        lambda h: {(n.what,): n.used / max(n.allowed, 1) for n in h.names},
    ),
    _figure(
        "redrive_limit_oldest_wait_seconds",
        "How long a job has waited for the limit; `customer:*` includes all its keys.",
        ("limit",),
        lambda h: {(name,): seconds for name, seconds in h.limits.items()},
    ),
    _figure(
        "redrive_campaign_idle_seconds",
        "Time since the last step of a campaign with dead letters left, by state.",
        ("state",),
        lambda h: {(state,): seconds for state, seconds in h.campaigns.items()},
    ),
    _figure(
        "redrive_heals_aborted",
        "Campaigns of heal that aborted in the last day.",
        (),
        lambda h: {(): h.heals_aborted},
    ),
)
