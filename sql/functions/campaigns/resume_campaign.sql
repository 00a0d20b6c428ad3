-- resume_campaign: continue a campaign that is paused or has aborted. Audited.
-- It begins with canaries again, and is judged only by the jobs that end from now on.
-- errors: RD001 'campaign: rule'
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
            'campaign: %s is %s; only a campaign that is paused or aborted can be resumed', campaign,
            coalesce((select c.state from redrive.campaigns c where c.id = campaign), 'not found'));
    end if;
    insert into redrive.audit (actor, action, why, n, detail)
    values (resume_campaign_v1.actor, 'resume redrive', resume_campaign_v1.why, 1,
            jsonb_build_object('campaign', campaign));
end
$$;
