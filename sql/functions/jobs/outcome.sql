-- outcome: what became of a job, as far as that is on record, and what its handler returned.
-- out:   outcome: live | dead | dismissed | cancelled | succeeded; null: there was no such job. One
--        of which nothing is left has succeeded, unless it is on record that it was cancelled.
--        result: {"value": ...} or an envelope, of this delivery; null where nothing was returned or
--        is kept
-- plan:  jobs_pkey, dead_letters_pkey, audit_ids_idx, results_pkey
create or replace function redrive.outcome_v1(
    job bigint, out outcome text, out result jsonb, out delivery int)
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
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
        when outcome_v1.job between 1 and coalesce(pg_sequence_last_value(
                 pg_get_serial_sequence('redrive.jobs', 'id')::regclass), 0)
            then 'succeeded' end,
        r.result, r.deliveries
    from (select) one
    left join lateral (
        select o.state, o.outcome from redrive.dead_letters o
        where o.id = outcome_v1.job order by o.redrives desc limit 1) d on true
    left join redrive.results r on r.job = outcome_v1.job
$$;
