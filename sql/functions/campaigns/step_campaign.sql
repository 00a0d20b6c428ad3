-- step_campaign: carry out what was decided after a look: release jobs, and store the new state.
-- in:    step: the number of the step that was looked at
--        feed: how many dead letters, or failing jobs, to process
--        first_turn: when the first job is due, or now if now is later; the others follow at the
--        rate. Without jobs: the time until which the rate is used up
--        said: why the campaign is in this state
--        late_before: how late other jobs were when the campaign began
--        held_since: since when the campaign waits because other jobs are later now
-- out:   how many jobs were released; null: nothing changed, because another worker was first or a
--        row is locked that this step needs. The step comes again
-- locks: the campaign, skip locked; if the campaign ends, the end of the audit log, skip locked;
--        then dead letters, ascending, skip locked: the step ends before the first one that is
--        locked. The key of a dead letter may belong to a job that is not committed yet: wait for
--        it up to 100 ms
-- plan:  campaign_jobs_pkey, dead_letters_pkey
-- The release of a job and its mark in the campaign commit together. If the worker is killed at any
-- moment, the next worker continues where this one ended.
create or replace function redrive.step_campaign_v1(
    campaign bigint, step int, state text, feed int, first_turn float8, said text,
    late_before float8 default null, held_since float8 default null)
returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set lock_timeout = '100ms'
set jit = off
as $$
#variable_conflict use_column
declare
    c redrive.campaigns;
    is_retry boolean;      -- of failing jobs
    upto int;
    ids bigint[];
    edited int[];            -- places whose dead letters are not as they were planned
    done bigint[];         -- what was released or stayed, with the causes
    blocks text[];
    fed int := 0;
    causes jsonb := '{}';
    looked int := 0;
    begins timestamptz := to_timestamp(step_campaign_v1.first_turn);
begin
    -- 1. Lock the campaign, and the end of the audit log if this step ends the campaign.
    select * into c from redrive.campaigns o
    where o.id = step_campaign_v1.campaign and o.step = step_campaign_v1.step
      and o.planned_login is not null and o.state in ('waiting', 'canary', 'ramp', 'running')
    for update skip locked;
    if not found then
        return null;
    end if;
    is_retry := c.filter ? 'failing';
    if step_campaign_v1.state in ('aborted', 'done') then
        perform from redrive.audit_chain a for update skip locked;
        if not found then
            return null;
        end if;
    end if;
    -- 2. Refuse a state that a step cannot lead to.
    if step_campaign_v1.state not in ('waiting', 'canary', 'ramp', 'running', 'aborted', 'done')
       or step_campaign_v1.state = 'done' and (
           c.place < c.matched or c.redriven > c.succeeded + c.dead_again + c.cancelled) then
        raise exception using errcode = 'RD001', message = 'state: a step cannot lead to this state';
    end if;
    if step_campaign_v1.feed > 0 and step_campaign_v1.state in ('canary', 'ramp', 'running') then
        -- 3. Find how far this step goes. It ends before the first dead letter that is locked.
        -- Dead letters that are invalid, or no longer open, are passed over beside the others, at most
        -- 1000 at a time. So they use up no turn.
        select coalesce(
            (select j.n - 1 from redrive.campaign_jobs j
             where j.campaign = c.id and j.n > c.place and j.n <= c.place + 1000
               and j.state is null
               and (is_retry or exists (
                   select from redrive.dead_letters d
                   where d.id = j.id and d.redrives = j.redrives
                     and d.state is not distinct from 'open'))
             order by j.n offset least(feed, 1000) limit 1),
            c.place + 1000) into upto;
        -- Release only the generation that was planned: a job that died again since is another dead
        -- letter. Release only the payload and the headers that were planned.
        with wanted as materialized (
            select j.n from redrive.campaign_jobs j
            join redrive.dead_letters d on d.id = j.id and d.redrives = j.redrives
            where j.campaign = c.id and j.n > c.place and j.n <= upto and not is_retry
              and d.state is not distinct from 'open'),
        free as materialized (
            select d.id, j.n, j.state,
                   j.digest <> redrive.content_digest_v1(d.payload, d.headers) as is_edited
            from redrive.campaign_jobs j
            join redrive.dead_letters d on d.id = j.id and d.redrives = j.redrives
            where j.campaign = c.id and j.n > c.place and j.n <= upto and not is_retry
              and d.state is not distinct from 'open'
            order by d.id for update of d skip locked),
        stuck as materialized (
            select min(w.n) as n from wanted w where w.n not in (select f.n from free f))
        select least(upto, s.n - 1),
               (select array_agg(f.id order by f.id) from free f
                where f.state is null and f.is_edited is not true and (s.n is null or f.n < s.n)),
               array(select f.n from free f where f.state is null and f.is_edited)
        into upto, ids, edited from stuck s;
        if upto <= c.place then
            return null;
        end if;
        if is_retry then
            ids := array(select j.id from redrive.campaign_jobs j
                         where j.campaign = c.id and j.n > c.place and j.n <= upto order by j.n);
        end if;
        -- 4. Release the jobs, and mark each dead letter in the campaign.
        -- Read the clock after the locks: the time spent waiting for them is not made up for.
        begins := greatest(clock_timestamp(), begins);
        if is_retry then
            select array_agg(r.id), array_agg(r.blocked) into done, blocks
            from redrive.retry_now_v1(ids, c.id, c.rate, begins) r;
        else
            select array_agg(r.id), array_agg(r.blocked) into done, blocks
            from redrive.redrive_v1(
                coalesce(ids, '{}'), c.id, c.rate, begins, c.max_redrives, false) r;
        end if;
        with verdict as materialized (
            select v.id, v.blocked from unnest(done, blocks) as v(id, blocked)),
        marked as (
            update redrive.campaign_jobs j
            set state = case when j.state = 'invalid' then 'invalid'
                             when v.id is null or v.blocked is not null then 'blocked'
                             else 'redriven' end
            from redrive.campaign_jobs o left join verdict v on v.id = o.id
            where j.campaign = c.id and j.n > c.place and j.n <= upto
              and o.campaign = c.id and o.n = j.n
            returning j.id, j.redrives, v.id is null as is_left_out,
                      case when j.state = 'invalid' then 'invalid'
                           when j.n = any (edited) then 'edited'
                           when v.id is null then 'not_open' else v.blocked end as cause),
        refused as (
            update redrive.dead_letters d set blocked = m.cause from marked m
            where m.is_left_out and m.cause in ('invalid', 'edited') and d.id = m.id and d.redrives = m.redrives
              and d.state is not distinct from 'open' and not is_retry)
        select coalesce(sum(m.n), 0), coalesce(sum(m.n) filter (where m.cause is null), 0),
               coalesce(jsonb_object_agg(m.cause, m.n) filter (where m.cause is not null), '{}')
        into looked, fed, causes
        from (select k.cause, count(*) as n from marked k group by k.cause) m;
    end if;
    -- 5. Store the new state and the counts. Record the end in the audit log.
    update redrive.campaigns o
    set step = o.step + 1, state = step_campaign_v1.state, said = step_campaign_v1.said,
        place = o.place + looked, round_fed = o.round_fed + fed,
        fed_at = begins + coalesce(feed / c.rate, 0) * interval '1 s',
        late_before = coalesce(step_campaign_v1.late_before, o.late_before),
        held_since = to_timestamp(step_campaign_v1.held_since), active_at = clock_timestamp(),
        ended_at = case when step_campaign_v1.state in ('aborted', 'done')
                        then clock_timestamp() end,
        blocked = (select coalesce(jsonb_object_agg(k.cause, k.n), '{}')
                   from (select e.key as cause, sum(e.value::int) as n
                         from (select * from jsonb_each_text(o.blocked)
                               union all select * from jsonb_each_text(causes)) e
                         group by e.key) k)
    where o.id = c.id returning * into c;
    if c.state in ('aborted', 'done') then
        insert into redrive.audit (actor, action, why, n, detail)
        values ('redrive', case c.state when 'done' then 'end redrive' else 'abort redrive' end,
                coalesce(c.said, c.why), c.redriven, jsonb_build_object(
                    'campaign', c.id, 'matched', c.matched, 'blocked', c.blocked,
                    'succeeded', c.succeeded, 'dead_again', c.dead_again));
    end if;
    return fed;
exception
    when lock_not_available then
        return null;
end
$$;
