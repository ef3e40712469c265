-- Indexes on the tables of jobs that no migration made, and that no statement has read.
WITH found (subject) AS (
    SELECT format(
        'awa.%%s on awa.%%s, %%s%%s',
        relation.relname, stat.relname, pg_size_pretty(pg_relation_size(relation.oid)),
        CASE WHEN NOT index.indisvalid THEN ', invalid' ELSE '' END
    )
    FROM pg_index AS index
    JOIN pg_class AS relation ON relation.oid = index.indexrelid
    JOIN pg_stat_all_indexes AS stat ON stat.indexrelid = index.indexrelid
    WHERE stat.schemaname = 'awa'
      AND stat.relname IN ('jobs_hot', 'scheduled_jobs')
      AND stat.idx_scan = 0
      AND NOT index.indisunique  -- it refuses rows, whether it is read or not
      AND relation.relname NOT IN (
          'jobs_hot_claim', 'jobs_hot_running', 'jobs_hot_finalized', 'jobs_hot_attention',
          'scheduled_jobs_due', 'scheduled_jobs_kind_due', 'scheduled_jobs_queue_due'
      )
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject FROM found ORDER BY found.subject LIMIT 20)
