-- For the rest of the open transaction: read rows by an index that has them in the order asked for.
-- Statistics of a drained table say that it is empty; then every index looks as good, and a sort of
-- all that is due as cheap, as the first rows of the right one.
SELECT
    set_config('enable_sort', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('enable_seqscan', 'off', true)
