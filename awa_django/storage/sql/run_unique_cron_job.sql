-- run_cron_job for a schedule whose jobs hold unique keys: the key first and the job second, as an enqueue
-- does. Returns id, queue; the id is null when another job holds the key. No row when there is no such
-- schedule. Waits for a rival that has taken the key in an open transaction.
-- Params: name, asked_by; unique_key, unique_states.
-- Index: cron_jobs_pkey, idx_awa_jobs_unique.
WITH schedule AS MATERIALIZED (
    SELECT nextval('awa.jobs_id_seq') AS id, asked.*
    FROM awa.cron_jobs AS asked
    WHERE asked.name = %(name)s::text
),
claim AS (
    INSERT INTO awa.job_unique_claims (unique_key, job_id)
    SELECT %(unique_key)s::bytea, schedule.id
    FROM schedule
    ON CONFLICT (unique_key) DO NOTHING
    RETURNING job_id
),
job AS (
    INSERT INTO awa.jobs_hot (
        id, kind, queue, args, priority, max_attempts, tags, metadata, unique_key, unique_states
    )
    SELECT
        schedule.id,
        schedule.kind,
        schedule.queue,
        schedule.args,
        schedule.priority,
        schedule.max_attempts,
        schedule.tags,
        schedule.metadata - 'awa:unique' || jsonb_build_object('awa:cron', jsonb_build_object(
            'name', schedule.name,
            'asked_at', clock_timestamp(),
            'asked_by', %(asked_by)s::text
        )),
        %(unique_key)s::bytea,
        %(unique_states)s::bit(8)
    FROM schedule
    JOIN claim ON claim.job_id = schedule.id
    RETURNING id
)
SELECT job.id, schedule.queue
FROM schedule
LEFT JOIN job ON job.id = schedule.id
