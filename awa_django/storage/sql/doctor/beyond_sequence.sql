-- Jobs whose id the sequence has yet to give.
WITH found (subject) AS (
    SELECT job.id
    FROM awa.jobs_id_seq AS sequence
    JOIN awa.jobs_hot AS job
        ON job.id > sequence.last_value OR (job.id = sequence.last_value AND NOT sequence.is_called)
    UNION ALL
    SELECT job.id
    FROM awa.jobs_id_seq AS sequence
    JOIN awa.scheduled_jobs AS job
        ON job.id > sequence.last_value OR (job.id = sequence.last_value AND NOT sequence.is_called)
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
