-- totals: show each counter with its unfolded deltas, exact in the snapshot of the caller.
create or replace view redrive.totals as
    select queue, kind, event, reason, sum(n)::bigint as n
    from (select queue, kind, event, reason, n from redrive.tallies
          union all
          select queue, kind, event, reason, n from redrive.deltas) both_tables
    group by queue, kind, event, reason;
