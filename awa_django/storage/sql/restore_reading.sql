-- Take back limit_reading.sql in a transaction that goes on.
-- Params: statement_timeout, enable_sort, enable_bitmapscan, enable_seqscan, jit,
--   max_parallel_workers_per_gather (what was set before).
SELECT
    set_config('statement_timeout', %(statement_timeout)s::text, true),
    set_config('enable_sort', %(enable_sort)s::text, true),
    set_config('enable_bitmapscan', %(enable_bitmapscan)s::text, true),
    set_config('enable_seqscan', %(enable_seqscan)s::text, true),
    set_config('jit', %(jit)s::text, true),
    set_config('max_parallel_workers_per_gather', %(max_parallel_workers_per_gather)s::text, true)
