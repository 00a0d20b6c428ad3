-- outcome: return the outcome of a job, if it is on record, and what its handler returned.
-- in:    was_live: the caller has seen the job live. A job that succeeds leaves no row, unless
--        something of it is kept. An enqueue that was rolled back and a purged dead letter leave no
--        row either. So "no row" means success only to a caller who saw the job live
-- out:   outcome: live | dead | dismissed | cancelled | succeeded | unknown: nothing is on record;
--        null: no job ever had this id
--        result: {"value": ...} or an envelope, of this delivery; null if nothing was returned or
--        is kept
-- plan:  jobs_pkey, dead_letters_pkey, results_pkey, audit_ids_idx, the index on id of each day of
--        the history
create or replace function redrive.outcome_v1(
    job bigint, was_live boolean, out outcome text, out result jsonb, out delivery int)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
    select case
        when exists (select from redrive.jobs j where j.id = outcome_v1.job) then 'live'
        when d.state = 'open' then 'dead'
        when d.state = 'dismissed' then 'dismissed'
        when r.outcome is not null then r.outcome
        when d.outcome = 'cancelled'
             or exists (select from redrive.cancellations c
                        where c.job = outcome_v1.job and c.is_heeded)
             or exists (select from redrive.audit a
                        where a.detail -> 'ids' @> to_jsonb(outcome_v1.job)
                          and (a.action = 'end cancel' or a.action = 'cancel'
                               and not a.detail -> 'asked' @> to_jsonb(outcome_v1.job)))
            then 'cancelled'
        when d.outcome = 'succeeded' then 'succeeded'
        -- the job died again, and that dead letter was purged
        when d.outcome = 'dead_again' then 'unknown'
        when h.state is not null
            then case h.state when 'completed' then 'succeeded' else h.state end
        when outcome_v1.job between 1 and coalesce(pg_sequence_last_value(
                 pg_get_serial_sequence('redrive.jobs', 'id')::regclass), 0)
            then case when was_live then 'succeeded' else 'unknown' end end,
        r.result, r.deliveries
    from (select) one
    left join lateral (
        select o.state, o.outcome from redrive.dead_letters o
        where o.id = outcome_v1.job order by o.redrives desc limit 1) d on true
    left join lateral (
        select o.state from redrive.history o
        where o.id = outcome_v1.job order by o.deliveries desc limit 1) h on true
    left join redrive.results r on r.job = outcome_v1.job
$$;
