-- For the rest of the open transaction: read rows by an index that has them in the order asked for.
-- Statistics of a drained table say that it is empty; then every index looks as good, and a sort of
-- all that is due as cheap, as the first rows of the right one.
-- Until PostgreSQL 17 a plan that cannot do without what is off counts as endlessly costly, as that of a
-- trigger's query may: it would be compiled first (JIT), for seconds.
SELECT
    set_config('enable_sort', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('enable_seqscan', 'off', true),
    set_config('jit', 'off', true)
