"""An example of what happened lately: counts, times, and changes, minute by minute."""

from typing import Any, LiteralString

import psycopg

from tests.factories import SERIES_SUMS

Connection = psycopg.Connection[Any]

_MINUTES: LiteralString = """
    with died as (
        select date_trunc(%(unit)s, d.died_at) as at, d.kind, count(*)::int as n
        from redrive.dead_letters d group by 1, 2)
    insert into redrive.series (span, at, queue, kind, enqueued, completed, failed, retried, died,
                                duration, wait)
    select %(span)s, m.at, k.queue, k.kind, c.n, greatest(0, c.n - c.bad * 2), c.bad * 3, c.bad * 2,
           c.bad,
           array[0, 1, 4, 9, 20, c.n, c.n / 2, c.n / 4, c.n / 9, 2 + c.slow, 1 + c.slow, 0, 0, 0, 0, 0, 0],
           array[0, 2, 9, c.n, c.n, 20, 9, 4, c.slow, c.slow, c.slow / 2, 0, 0, 0, 0, 0, 0, 0]
    from generate_series(
        date_trunc(%(unit)s, now()) - %(steps)s * %(step)s::interval,
        date_trunc(%(unit)s, now()) - %(step)s::interval, %(step)s::interval) m(at)
    cross join (values
        ('billing', 'invoice.charge', 60), ('imports', 'order.import', 25),
        ('mail', 'mail.send', 140), ('reports', 'report.render', 6),
        ('media', 'thumbnail.make', 45), ('default', 'user.sync', 18)) k(queue, kind, rate)
    left join died on died.at = m.at and died.kind = k.kind
    cross join lateral (
        select ((k.rate * (1.2 + sin(extract(epoch from m.at) / 14000)) + 7 * random())
                * extract(epoch from %(step)s::interval) / 60)::int as n,
               coalesce(died.n, 0) as bad,
               case when k.queue = 'billing' and m.at > now() - interval '140 min' then 40 else 1 end
                    as slow) c"""

_QUEUES: LiteralString = """
    insert into redrive.queue_series (span, at, queue, minutes, backlog, running, workers)
    select s.span, s.at, q.queue, s.span,
           sum(case when s.queue = 'billing' and s.at > now() - interval '2 h'
                    then extract(epoch from s.at - now() + interval '2 h') / 6
                    else 4 + 9 * random() end)::int,
           sum(2 + 3 * random())::int, 3
    from redrive.series s cross join lateral (values (s.queue), ('')) q(queue)
    where s.queue <> '' and s.kind <> ''
    group by s.span, s.at, q.queue"""

_MARKS: LiteralString = """
    insert into redrive.marks (at, what, name, queues, kinds)
    values (now() - interval '154 min', 'deploy', '1.4.1', null, null),
           (now() - interval '20 h', 'deploy', '1.3.7', null, null),
           (now() - interval '9 h 6 min', 'deploy', '1.4.0', null, null),
           (now() - interval '42 min', 'worker lost', 'worker-7d9f4-m4t2z', array['media'], null),
           (now() - interval '6 min', 'breaker open', 'smtp', array['mail'], null)"""


def record(conn: Connection) -> None:
    """Record a day of minutes and a month of hours, as workers would have."""
    conn.execute(
        "truncate redrive.series, redrive.queue_series, redrive.series_deltas, redrive.marks"
    )
    for span, unit, steps, step in (
        (1, "minute", 26 * 60, "1 min"),
        (60, "hour", 35 * 24, "1 h"),
    ):
        values = {"span": span, "unit": unit, "steps": steps, "step": step}
        conn.execute(_MINUTES, values)
    conn.execute(SERIES_SUMS)
    conn.execute(_QUEUES)
    conn.execute(_MARKS)
    # Nothing has happened since the last of these minutes.
    conn.execute("select redrive.fold_v1()")
    conn.execute("update redrive.tallies set counted = n")
    conn.execute(
        "update redrive.chores set place = extract(epoch from date_trunc('minute', now())) / 60 - 1"
        " where name = 'series'"
    )
