-- The estimated dead rows of the hot and of the deferred table.
SELECT
    pg_stat_get_dead_tuples('awa.jobs_hot'::regclass),
    pg_stat_get_dead_tuples('awa.scheduled_jobs'::regclass)
