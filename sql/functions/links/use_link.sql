-- use_link: use a link of an alert, once.
-- Each call also deletes records that are older than a day. Links last fifteen minutes, so the
-- table needs no chore.
-- in:    link: the id in a link whose signature the console has checked
-- out:   false: it was used before
create or replace function redrive.use_link_v1(link text) returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    delete from redrive.used_links l where l.used_at < clock_timestamp() - interval '1 day';
    with used as (
        insert into redrive.used_links (link) values (use_link_v1.link)
        on conflict do nothing returning link)
    select exists (select from used)
$$;
