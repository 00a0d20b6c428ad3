-- keep_samples: offer succeeded jobs to the reservoirs of their kinds.
-- A reservoir holds 200 samples, spread evenly over the time since the first one, up to three days.
-- After that, the older a sample is, the likelier it has been replaced. This is Vitter's algorithm
-- R (1985) by time instead of number, biased to the last days as in Aggarwal (2006). Most offers
-- come too early and cost the read of one row.
-- in:    parallel arrays: kinds, facts
-- out:   how many were kept
-- locks: the reservoir's row, skip locked: an offer is not worth a wait. New rows are inserted in
--        the order of kinds, so that two callers with the same kinds never wait in a circle
create or replace function redrive.keep_samples_v1(kinds text[], facts jsonb[]) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    size constant int := 200;
    most_kinds constant int := 500;
    most_bytes constant int := 8192;
    kept int := 0;
    offer record;
    reservoir redrive.reservoirs;
    now_at timestamptz;
begin
    for offer in
        select o.kind, o.facts from unnest(kinds, keep_samples_v1.facts) as o(kind, facts)
        where o.kind collate "C" ~ '^[A-Za-z][A-Za-z0-9_.-]{0,62}$' and jsonb_typeof(o.facts) = 'object'
          and pg_column_size(o.facts) <= most_bytes
        order by o.kind
    loop
        select * into reservoir from redrive.reservoirs r where r.kind = offer.kind;
        now_at := clock_timestamp();
        if not found then
            insert into redrive.reservoirs (kind)
            select offer.kind where (select count(*) from redrive.reservoirs) < most_kinds
            on conflict do nothing;
        elsif reservoir.n >= size and now_at < reservoir.taken_at
              + least(now_at - reservoir.began_at, interval '3 days') / size then
            continue;
        end if;
        select * into reservoir from redrive.reservoirs r where r.kind = offer.kind
        for update skip locked;
        continue when not found;
        insert into redrive.reservoir_samples (kind, slot, facts)
        values (offer.kind, case when reservoir.n < size then reservoir.n
                                 else floor(random() * size)::int end, offer.facts)
        on conflict (kind, slot) do update set at = excluded.at, facts = excluded.facts;
        update redrive.reservoirs r
        set n = least(r.n + 1, size), taken_at = clock_timestamp()
        where r.kind = offer.kind;
        kept := kept + 1;
    end loop;
    return kept;
end
$$;
