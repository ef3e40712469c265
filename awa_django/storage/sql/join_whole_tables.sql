-- For the rest of the open transaction: no statement longer than so many milliseconds (a limit that is lower
-- already stays), and join tables as wholes. Statistics of a drained table say that it is empty, and a nested
-- loop over two tables that are not takes the product of their rows.
-- Params: milliseconds (null: no limit of ours).
SELECT
    set_config('statement_timeout', coalesce(least(before.milliseconds, %(milliseconds)s::bigint), 0)::text, true),
    set_config('enable_nestloop', 'off', true),
    set_config('jit', 'off', true)
FROM (
    SELECT nullif(setting.setting::bigint, 0) AS milliseconds
    FROM pg_catalog.pg_settings AS setting
    WHERE setting.name = 'statement_timeout'
) AS before
