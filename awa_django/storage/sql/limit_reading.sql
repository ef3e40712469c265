-- For the rest of the open transaction: no statement longer than so many milliseconds (a limit that is lower
-- already stays), no second processor for it, and rows by an index that has them in the order asked for, see
-- plan_in_order.sql.
-- Params: milliseconds (null: no limit of ours).
-- Returns what was set before, for restore_reading.sql.
WITH before AS MATERIALIZED (
    SELECT
        current_setting('statement_timeout') AS statement_timeout,
        current_setting('enable_sort') AS enable_sort,
        current_setting('enable_bitmapscan') AS enable_bitmapscan,
        current_setting('enable_seqscan') AS enable_seqscan,
        current_setting('jit') AS jit,
        current_setting('max_parallel_workers_per_gather') AS max_parallel_workers_per_gather,
        (
            SELECT nullif(setting.setting::bigint, 0)
            FROM pg_catalog.pg_settings AS setting
            WHERE setting.name = 'statement_timeout'
        ) AS milliseconds
)
SELECT
    before.statement_timeout,
    before.enable_sort,
    before.enable_bitmapscan,
    before.enable_seqscan,
    before.jit,
    before.max_parallel_workers_per_gather,
    set_config(
        'statement_timeout', coalesce(least(before.milliseconds, %(milliseconds)s::bigint), 0)::text, true
    ),
    set_config('enable_sort', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('enable_seqscan', 'off', true),
    set_config('jit', 'off', true),
    set_config('max_parallel_workers_per_gather', '0', true)
FROM before
