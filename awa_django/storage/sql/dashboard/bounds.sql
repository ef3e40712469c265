-- For the rest of the open transaction: end a statement that takes too long (sooner where the role has a
-- lower limit), wait for no lock, and read rows by an index that has them in the order asked for, whatever
-- the statistics say (see plan_in_order.sql).
-- Params: milliseconds.
-- Returns the clock of the transaction, first.
SELECT
    now(),
    set_config('statement_timeout', least(allowed.longest, %(milliseconds)s::integer)::text, true),
    set_config('lock_timeout', (%(milliseconds)s::integer / 4)::text, true),
    set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('enable_sort', 'off', true),
    set_config('jit', 'off', true)
FROM (
    -- In milliseconds; zero is no limit.
    SELECT nullif(parameter.setting::integer, 0) AS longest
    FROM pg_settings AS parameter
    WHERE parameter.name = 'statement_timeout'
) AS allowed
