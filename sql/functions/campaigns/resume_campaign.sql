-- resume_campaign: continue a campaign that is paused or has aborted. Audited.
-- It begins with canaries again, and is judged only by the jobs that end from now on.
-- The person who resumes it approves the edits that were made meanwhile. If its kinds need two people, one
-- cannot approve them: edited dead letters stay.
-- errors: RD001 'campaign ID: rule'
create or replace function redrive.resume_campaign_v1(campaign bigint, actor text, why text)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
    update redrive.campaigns c
    set state = 'waiting', said = resume_campaign_v1.why, step = c.step + 1, ended_at = null,
        active_at = clock_timestamp(), round_fed = 0, round_ended = 0,
        round_dead = 0, judged_from = c.place, window_dead = 0
    where c.id = campaign and c.planned_login is not null and c.state in ('paused', 'aborted');
    if not found then
        raise exception using errcode = 'RD001', message = format(
            'campaign %s is %s; only a campaign that is paused or aborted can be resumed', campaign,
            coalesce((select c.state from redrive.campaigns c where c.id = campaign), 'not found'));
    end if;
    update redrive.campaign_jobs j
    set digest = redrive.content_digest_v1(d.payload, d.headers)
    from redrive.campaigns c, redrive.edits e, redrive.dead_letters d
    where c.id = resume_campaign_v1.campaign and j.campaign = c.id and j.n > c.place
      and j.state is null and e.job = j.id and e.redrives = j.redrives and e.at > c.started_at
      and d.id = j.id and d.redrives = j.redrives
      and not exists (select from redrive.approvals a
                      where a.kind in (select jsonb_array_elements_text(c.plan -> 'kinds')));
    insert into redrive.audit (actor, action, why, n, detail)
    values (resume_campaign_v1.actor, 'resume redrive', resume_campaign_v1.why, 1,
            jsonb_build_object('campaign', campaign));
end
$$;
