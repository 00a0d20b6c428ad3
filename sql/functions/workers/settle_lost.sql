-- settle_lost: settle jobs of lost workers, one by one if the batch fails.
-- A constraint or trigger that was added to our tables may refuse one of them. That job waits for a
-- minute and stays as it is.
-- in:    as settle
-- out:   the jobs that were settled, with their outcomes
-- locks: as settle; the caller has locked the jobs
create or replace function redrive.settle_lost_v1(
    workers int[], claims bigint[], ids bigint[], deliveries int[], outcomes text[],
    refunds boolean[], losses int[], failures jsonb[], reasons text[])
returns table (id bigint, outcome text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    n constant int := coalesce(cardinality(ids), 0);
begin
    if n = 0 then
        return;
    end if;
    begin
        -- the outcome at the job's place: see settle
        return query
        select s.id, outcomes[width_bucket(s.id, ids)]
        from redrive.settle_v1(
            workers, claims, ids, deliveries, outcomes, array_fill(null::timestamptz, array[n]),
            array_fill(0::float8, array[n]), refunds, losses, failures, reasons, '{}') s(id);
        return;
    exception
        when others then null;
    end;
    for i in 1 .. n loop
        begin
            return query
            select s.id, outcomes[i]
            from redrive.settle_v1(
                workers[i:i], claims[i:i], ids[i:i], deliveries[i:i], outcomes[i:i],
                array[null::timestamptz], array[0::float8], refunds[i:i], losses[i:i],
                failures[i:i], reasons[i:i], '{}') s(id);
        exception
            when lock_not_available or transaction_rollback then
                null;  -- the next rescue tries it again
            when others then
                begin
                    perform redrive.settle_v1(
                        workers[i:i], claims[i:i], ids[i:i], deliveries[i:i], array['release'],
                        array[null::timestamptz], array[60::float8], array[true], array[0],
                        array[null::jsonb], array['unstorable'], '{}');
                exception
                    when others then null;
                end;
        end;
    end loop;
end
$$;
