-- shown_breakers: show the states of breakers. A reader of people's texts also sees why one is held.
create or replace view redrive.shown_breakers as
    select b.name, b.state, b.failures, b.successes, b.opened, b.opened_at, b.open_until,
           b.changed_at, b.forced_by,
           case when redrive.reads_texts_v1() then b.forced_why end as forced_why
    from redrive.breakers b;
