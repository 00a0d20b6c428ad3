"""Write down what a database really did, so that the model can judge it.

Triggers note each row that changes, and five functions are wrapped to note what their callers asked
for and what they got. Each note is part of the transaction that it tells of: what is rolled back, or
lost in a crash, leaves no note. The SQL under test stays as it is.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, LiteralString

import psycopg

RECORD: LiteralString = """
    create table public.record (
        seq bigint generated always as identity primary key,
        xid bigint not null default pg_current_xact_id()::text::bigint,
        what text not null, detail jsonb not null);

    create function public.record_jobs() returns trigger language plpgsql security definer as $$
    begin
        if tg_op = 'DELETE' then
            insert into public.record (what, detail)
            select 'job gone', jsonb_build_object('id', o.id, 'deliveries', o.deliveries)
            from old_rows o order by o.id;
        elsif tg_op = 'INSERT' then
            insert into public.record (what, detail)
            select 'job new', jsonb_build_object(
                'id', n.id, 'kind', n.kind, 'key', n.idempotency_key, 'queue', n.queue,
                'okey', n.ordering_key, 'deliveries', n.deliveries, 'redrives', n.redrives,
                'losses', n.losses,
                'parked', n.ordering_key is not null and n.run_at = 'infinity')
            from new_rows n order by n.id;
        else
            insert into public.record (what, detail)
            select 'job changed', jsonb_build_object(
                'id', n.id, 'deliveries', n.deliveries, 'losses', n.losses,
                'parked', n.ordering_key is not null and n.run_at = 'infinity',
                'was', jsonb_build_object(
                    'deliveries', o.deliveries, 'losses', o.losses,
                    'parked', o.ordering_key is not null and o.run_at = 'infinity'))
            from new_rows n join old_rows o using (id)
            where (n.deliveries, n.losses) <> (o.deliveries, o.losses)
               or n.ordering_key is not null
                  and (n.run_at = 'infinity') <> (o.run_at = 'infinity')
            order by n.id;
        end if;
        return null;
    end $$;

    create function public.record_dead() returns trigger language plpgsql security definer as $$
    begin
        if tg_op = 'DELETE' then
            insert into public.record (what, detail)
            select 'dead gone', jsonb_build_object('id', o.id, 'redrives', o.redrives)
            from old_rows o;
        elsif tg_op = 'INSERT' then
            insert into public.record (what, detail)
            select 'dead new', jsonb_build_object(
                'id', n.id, 'redrives', n.redrives, 'reason', n.reason,
                'deliveries', n.deliveries, 'holds', coalesce(n.holds_key, false))
            from new_rows n;
        else
            insert into public.record (what, detail)
            select 'dead changed', jsonb_build_object(
                'id', n.id, 'redrives', n.redrives, 'from', o.state, 'to', n.state)
            from new_rows n join old_rows o using (id, redrives) where n.state <> o.state;
        end if;
        return null;
    end $$;

    create function public.record_claims() returns trigger language plpgsql security definer as $$
    begin
        if tg_op = 'DELETE' then
            insert into public.record (what, detail)
            select 'claim gone', jsonb_build_object('id', o.id) from old_rows o;
        else
            insert into public.record (what, detail)
            select case tg_op when 'INSERT' then 'claim new' else 'claim changed' end,
                   jsonb_build_object('id', n.id, 'worker', n.worker, 'ids', n.ids)
            from new_rows n;
        end if;
        return null;
    end $$;

    create function public.record_workers() returns trigger language plpgsql security definer as $$
    begin
        if tg_op = 'DELETE' then
            insert into public.record (what, detail)
            select 'worker gone', jsonb_build_object('id', o.id) from old_rows o;
        elsif tg_op = 'INSERT' then
            insert into public.record (what, detail)
            select 'worker new', jsonb_build_object('id', n.id, 'lost', n.lost_at is not null)
            from new_rows n;
        else
            insert into public.record (what, detail)
            select case when n.lost_at is not null and o.lost_at is null
                        then 'worker lost' else 'worker closed' end,
                   jsonb_build_object(
                       'id', n.id, 'silent', o.heard < redrive.contact_now_v1() - o.ttl)
            from new_rows n join old_rows o using (id)
            where (n.lost_at is null) <> (o.lost_at is null) or n.is_closed <> o.is_closed;
            insert into public.record (what, detail)
            select 'worker alone', jsonb_build_object('id', n.id)
            from new_rows n join old_rows o using (id) where n.alone is distinct from o.alone;
        end if;
        return null;
    end $$;

    create function public.record_keys() returns trigger language plpgsql security definer as $$
    begin
        if tg_op = 'DELETE' then
            insert into public.record (what, detail)
            select 'key gone', jsonb_build_object('kind', o.kind, 'key', o.key)
            from old_rows o where o.job <> 0;
        else
            insert into public.record (what, detail)
            select 'key new', jsonb_build_object('kind', n.kind, 'key', n.key)
            from new_rows n where n.job <> 0;
        end if;
        return null;
    end $$;

    -- A function of ours names its own arguments by its name, so it is copied and not renamed.
    do $$ declare name text; begin
        foreach name in array array[
            'complete_v1', 'settle_v1', 'retire_v1', 'purge_v1', 'run_alone_v1']
        loop
            execute replace(pg_get_functiondef(('redrive.' || name)::regproc), name, name || '_unseen');
            execute format('alter function redrive.%s owner to redrive_owner', name || '_unseen');
        end loop;
    end $$;

    create or replace function redrive.complete_v1(
        workers int[], claims bigint[], ids bigint[], deliveries int[], ended bigint[])
    returns bigint[] language plpgsql security definer as $$
    declare
        took constant bigint[] := redrive.complete_v1_unseen(
            workers, claims, ids, deliveries, ended);
    begin
        insert into public.record (what, detail)
        values ('asked', jsonb_build_object(
            'workers', workers, 'claims', claims, 'ids', ids, 'deliveries', deliveries,
            'took', coalesce(took, ids)));
        return took;
    end $$;

    create or replace function redrive.settle_v1(
        workers int[], claims bigint[], ids bigint[], deliveries int[], outcomes text[],
        run_ats timestamptz[], delays float8[], refunds boolean[], losses int[], failures jsonb[],
        reasons text[], ended bigint[])
    returns setof bigint language plpgsql security definer as $$
    declare
        took constant bigint[] := array(select s from redrive.settle_v1_unseen(
            workers, claims, ids, deliveries, outcomes, run_ats, delays, refunds, losses, failures,
            reasons, ended) as s);
    begin
        insert into public.record (what, detail)
        values ('asked', jsonb_build_object(
            'workers', workers, 'claims', claims, 'ids', ids, 'deliveries', deliveries,
            'outcomes', outcomes, 'took', took));
        return query select unnest(took);
    end $$;

    create or replace function redrive.retire_v1(
        me int, known bigint[], out released int, out is_over boolean)
    language plpgsql security definer as $$
    begin
        select r.released, r.is_over into released, is_over
        from redrive.retire_v1_unseen(me, known) r;
        insert into public.record (what, detail)
        values ('retired', jsonb_build_object('worker', me, 'known', known));
    end $$;
    create or replace function redrive.purge_v1(
        run bigint, ids bigint[], generations int[], states text[])
    returns int language plpgsql security definer as $$
    declare
        purged constant int := redrive.purge_v1_unseen(run, ids, generations, states);
    begin
        insert into public.record (what, detail)
        values ('purges', jsonb_build_object('ids', ids, 'generations', generations));
        return purged;
    end $$;
    create or replace function redrive.run_alone_v1(me int, job bigint) returns float8
    language plpgsql security definer as $$
    declare
        patience constant float8 := redrive.run_alone_v1_unseen(me, job);
    begin
        insert into public.record (what, detail)
        values ('runs alone', jsonb_build_object('worker', me));
        return patience;
    end $$;
    grant all on public.record to public;
"""
WATCHED = {
    "jobs": "record_jobs",
    "dead_letters": "record_dead",
    "claims": "record_claims",
    "workers": "record_workers",
    "completions": "record_keys",
}


def install(conn: psycopg.Connection[Any]) -> None:
    """Begin to write down what happens in this migrated database, as a superuser."""
    conn.execute(RECORD)
    for table, function in WATCHED.items():
        for event, rows in (
            ("insert", "new table as new_rows"),
            ("update", "old table as old_rows new table as new_rows"),
            ("delete", "old table as old_rows"),
        ):
            if (table, event) != ("completions", "update"):
                conn.execute(
                    f"create trigger record_{event} after {event} on redrive.{table}"  # type: ignore[arg-type] # names of ours
                    f" referencing {rows} for each statement execute function public.{function}()"
                )


def read(conn: psycopg.Connection[Any]) -> Iterable[dict[str, Any]]:
    """Return what was written down: seq, xid, what, detail."""
    return [
        {"seq": seq, "xid": xid, "what": what, **detail}
        for seq, xid, what, detail in conn.execute(
            "select seq, xid, what, detail from public.record order by seq"
        )
    ]


def keep(conn: psycopg.Connection[Any], path: Path) -> None:
    """Write it into a file, one JSON object a line."""
    path.write_text("".join(json.dumps(line) + "\n" for line in read(conn)))
