-- reencrypt: replace one batch of values in one table by their newly encrypted versions.
-- in:    run     the line of the audit log that began the run
--        place   jobs | dead_letters | failures | side_effects | checkpoints | progress
--        | results | history | edits
--        ids     of jobs
--        ns      redrives of a dead letter, deliveries of a failure or side effect, n of an edit,
--        0 of a job
--        olds    what was read: the payload or detail; of a side effect {what, detail}
--        news    the envelopes to store
--        salts   the header that belongs to a payload; null if it has one
-- out:   how many values were still as they had been read; the others are not changed
-- errors: RD001 'run: rule', 'news: rule': nobody can change what a job should do this way
-- The digests of plans and campaigns follow a dead letter that is encrypted again. It is left for the
-- next run while one of its campaigns is locked.
-- locks: skip locked, so it waits for nothing: a row that a claim or a settlement has locked is
--        left for the next run
create or replace function redrive.reencrypt_v1(
    run bigint, place text, ids bigint[], ns int[], olds jsonb[], news jsonb[], salts text[])
returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
    changed int := 0;
    campaigns bigint[];      -- those that have yet to release dead letters, and that we hold
begin
    -- Beside its envelope a failure shows in the clear where it happened, as it did before.
    if exists (select from unnest(olds, news) as v(old, new)
               where jsonb_typeof(new) is distinct from 'object'
                  or jsonb_typeof(new -> '$redrive' -> 'k') is distinct from 'string'
                  or not (new - '$redrive') <@ case when place in ('jobs', 'dead_letters', 'history', 'edits')
                                                    then '{}' else old end) then
        raise exception using errcode = 'RD001', message = 'news: must be encrypted envelopes';
    end if;
    if place = 'jobs' then
        with pick as materialized (
            select j.id, v.new, v.salt from unnest(ids, olds, news, salts) as v(id, old, new, salt)
            join redrive.jobs j on j.id = v.id and j.payload = v.old
            for update of j skip locked)
        update redrive.jobs j
        set payload = p.new,
            headers = case when p.salt is null then j.headers
                           else j.headers || jsonb_build_object('$redrive', p.salt) end
        from pick p where j.id = p.id;
    elsif place = 'dead_letters' then
        campaigns := array(
            select c.id from redrive.campaigns c
            where c.planned_login is not null and c.state in (
                'planned', 'waiting', 'canary', 'ramp', 'running', 'paused', 'aborted')
            order by c.id for update skip locked);
        with planned as materialized (
            select c.id as campaign, o.n, o.id, o.redrives, o.digest
            from redrive.campaigns c
            cross join lateral (
                select j.n, j.id, j.redrives, j.digest from redrive.campaign_jobs j
                where j.campaign = c.id and j.n > c.place and j.state is null
                  and j.id = any (reencrypt_v1.ids)
                offset 0) o
            where c.planned_login is not null and c.state in (
                'planned', 'waiting', 'canary', 'ramp', 'running', 'paused', 'aborted')),
        pick as materialized (
            select d.id, d.redrives, v.new, d.payload, d.headers,
                   d.headers || case when v.salt is null then '{}'
                                     else jsonb_build_object('$redrive', v.salt) end as new_headers
            from unnest(ids, ns, olds, news, salts) as v(id, n, old, new, salt)
            join redrive.dead_letters d on d.id = v.id and d.redrives = v.n and d.payload = v.old
            where not exists (select from planned o
                              where o.id = d.id and o.redrives = d.redrives
                                and o.campaign <> all (campaigns))
            for update of d skip locked),
        followed as (
            update redrive.campaign_jobs j
            set digest = redrive.content_digest_v1(p.new, p.new_headers)
            from planned o join pick p on p.id = o.id and p.redrives = o.redrives
                and o.digest = redrive.content_digest_v1(p.payload, p.headers)
            where j.campaign = o.campaign and j.n = o.n)
        update redrive.dead_letters d
        set payload = p.new, message = '[encrypted]', headers = p.new_headers
        from pick p where d.id = p.id and d.redrives = p.redrives;
    elsif place = 'failures' then
        with pick as materialized (
            select f.job, f.deliveries, v.new from unnest(ids, ns, olds, news) as v(id, n, old, new)
            join redrive.failures f on f.job = v.id and f.deliveries = v.n and f.detail = v.old
            for update of f skip locked)
        update redrive.failures f set detail = p.new, message = '[encrypted]'
        from pick p where f.job = p.job and f.deliveries = p.deliveries;
    elsif place = 'side_effects' then
        with pick as materialized (
            select e.ctid as tid, v.new from unnest(ids, ns, olds, news) as v(id, n, old, new)
            join redrive.side_effects e on e.job = v.id and e.deliveries = v.n
                and jsonb_build_object('what', e.what, 'detail', e.detail) = v.old
            for update of e skip locked)
        update redrive.side_effects e set detail = p.new, what = '[encrypted]'
        from pick p where e.ctid = p.tid;
    elsif place = 'checkpoints' then
        with pick as materialized (
            select c.job, v.new from unnest(ids, ns, olds, news) as v(id, n, old, new)
            join redrive.checkpoints c on c.job = v.id and c.deliveries = v.n and c.data = v.old
            for update of c skip locked)
        update redrive.checkpoints c set data = p.new from pick p where c.job = p.job;
    elsif place = 'progress' then
        with pick as materialized (
            select s.job, v.new from unnest(ids, ns, olds, news) as v(id, n, old, new)
            join redrive.progress s on s.job = v.id and s.deliveries = v.n and s.detail = v.old
            for update of s skip locked)
        update redrive.progress s set detail = p.new from pick p where s.job = p.job;
    elsif place = 'results' then
        with pick as materialized (
            select r.job, v.new from unnest(ids, ns, olds, news) as v(id, n, old, new)
            join redrive.results r on r.job = v.id and r.deliveries = v.n and r.result = v.old
            for update of r skip locked)
        update redrive.results r set result = p.new from pick p where r.job = p.job;
    elsif place = 'history' then
        with pick as materialized (
            select h.id, h.deliveries, v.new, v.salt
            from unnest(ids, ns, olds, news, salts) as v(id, n, old, new, salt)
            join redrive.history h on h.id = v.id and h.deliveries = v.n and h.payload = v.old
            for update of h skip locked)
        update redrive.history h
        set payload = p.new,
            headers = case when p.salt is null then h.headers
                           else h.headers || jsonb_build_object('$redrive', p.salt) end
        from pick p where h.id = p.id and h.deliveries = p.deliveries;
    elsif place = 'edits' then
        with pick as materialized (
            select e.job, e.n, v.new, v.salt
            from unnest(ids, ns, olds, news, salts) as v(id, n, old, new, salt)
            join redrive.edits e on e.job = v.id and e.n = v.n and e.payload = v.old
            for update of e skip locked)
        update redrive.edits e
        set payload = p.new, salt = coalesce(p.salt, e.salt),
            -- the new values of an edit must not be readable either
            patch = (select coalesce(jsonb_agg(o.op - 'value' order by o.n), '[]')
                     from jsonb_array_elements(e.patch) with ordinality as o(op, n))
        from pick p where e.job = p.job and e.n = p.n;
    else
        return 0;
    end if;
    get diagnostics changed = row_count;
    perform redrive.count_run_v1(
        run, 'reencrypt', changed, jsonb_build_object('place', place, 'ids', to_jsonb(ids)));
    return changed;
end
$$;
