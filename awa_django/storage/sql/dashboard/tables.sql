-- The size of each table, its rows and dead rows as the server estimates them, and when it was last cleaned.
SELECT
    stat.relname::text,
    pg_table_size(stat.relid),
    pg_indexes_size(stat.relid),
    stat.n_live_tup,
    stat.n_dead_tup,
    greatest(stat.last_vacuum, stat.last_autovacuum),
    greatest(stat.last_analyze, stat.last_autoanalyze)
FROM pg_stat_all_tables AS stat
WHERE stat.schemaname = 'awa'
ORDER BY pg_total_relation_size(stat.relid) DESC, stat.relname
