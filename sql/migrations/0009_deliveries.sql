-- serves: 8
-- The fence has one name: parameters that were called tokens are made again as deliveries. A parameter cannot be renamed
-- in place; callers pass them by position, so workers of the release before notice nothing.
drop function if exists redrive.complete_v1(int[], bigint[], int[]);
drop function if exists redrive.complete_in_transaction_v1(int, bigint, int);
drop function if exists redrive.settle_v1(
    int[], bigint[], int[], text[], timestamptz[], float8[], boolean[], int[], jsonb[], text[]);
drop function if exists redrive.side_effects_v2(int[], bigint[], int[], text[], jsonb[]);
