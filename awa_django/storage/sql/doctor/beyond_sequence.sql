-- Jobs whose id the sequence has yet to give.
-- Index: jobs_hot_pkey, scheduled_jobs_pkey (no other is in the order of ids).
WITH found (subject) AS (
    (
        SELECT job.id
        FROM awa.jobs_hot AS job
        WHERE job.id > (SELECT sequence.last_value - (NOT sequence.is_called)::integer FROM awa.jobs_id_seq AS sequence)
        ORDER BY job.id
    )
    UNION ALL
    (
        SELECT job.id
        FROM awa.scheduled_jobs AS job
        WHERE job.id > (SELECT sequence.last_value - (NOT sequence.is_called)::integer FROM awa.jobs_id_seq AS sequence)
        ORDER BY job.id
    )
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
