-- shown_queues: show the settings of queues. A reader of people's texts also sees why one is paused.
create or replace view redrive.shown_queues as
    select q.queue, q.lanes, q.paused_at, q.paused_by,
           case when redrive.reads_texts_v1() then q.paused_why end as paused_why
    from redrive.queues q;
