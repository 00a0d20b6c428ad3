-- The share of a kind's attempts that may fail, before any of its jobs dies.
-- serves: 1
alter table redrive.kind_objectives
    drop constraint kind_objectives_objective_check,
    add constraint kind_objectives_objective_check check (
        case when kind = '*' then objective in ('dlq_unacknowledged_age_seconds', 'failed_ratio')
             else queue <> '*'
                  and objective in ('dlq_added_5m', 'dlq_added_1h', 'page_on_first_dead_letter',
                                    'failed_ratio')
        end);
insert into redrive.kind_objectives (queue, kind, objective, value)
values ('*', '*', 'failed_ratio', 0.5);
