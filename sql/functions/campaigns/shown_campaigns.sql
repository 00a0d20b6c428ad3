-- shown_campaigns: show the figures of campaigns. A reader of people's texts also sees reasons and
-- filters, which may hold values of payloads, and conditions, whose inside an operator writes.
create or replace view redrive.shown_campaigns as
    select c.id, c.created_at, c.actor, case when r.reads then c.why end as why,
           case when r.reads then c.filter else '{}' end as filter,
           c.rate, c.matched, c.redriven, c.blocked, c.state, c.active_at, c.db_user,
           c.planned_by, c.planned_login,
           case when r.reads then c.plan else c.plan - 'sample' end as plan,
           c.max_redrives, c.canaries, c.abort_share, c.not_before,
           case when r.reads then c.conditions else '{}' end as conditions,
           c.started_at, c.ended_at,
           case when r.reads or c.state in ('canary', 'ramp', 'running', 'aborted', 'done')
                then c.said end as said,
           c.step, c.place, c.succeeded, c.dead_again, c.cancelled, c.proposed_by
    from redrive.campaigns c, (select redrive.reads_texts_v1() as reads) r;
