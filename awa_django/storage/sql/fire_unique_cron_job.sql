-- fire_cron_job for a schedule whose jobs hold unique keys: a fire whose key is held gets no job, and is
-- counted as skipped; the mark moves on all the same. The key first and the job second, as an enqueue does.
-- Returns for each fire that was not done yet: its instant, the id of its job or null, the queue, and the
-- job that held its key before (null too when that is one of this statement's own, or has just taken it).
-- No row when there is nothing to do, as there. lock_not_available, and nothing done, where an open
-- transaction has taken a key: that is waited for so shortly that no other schedule notices.
-- Params: those of fire_cron_job; unique_keys, parallel to fire_ats; unique (the JSON text that the keys
-- were made from: a row that says something else by now is left for the next look), unique_states.
-- Index: cron_jobs_pkey, idx_awa_jobs_unique.
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout', '50ms', true)
),
schedule AS MATERIALIZED (
    SELECT locked.*, coalesce(locked.last_enqueued_at, locked.created_at) AS mark
    FROM awa.cron_jobs AS locked
    WHERE locked.name = %(name)s::text
      AND NOT locked.paused
      AND coalesce(locked.last_enqueued_at, locked.created_at) < %(until)s::timestamptz
      AND locked.metadata -> 'awa:unique' = %(unique)s::jsonb
    FOR UPDATE SKIP LOCKED
),
fire AS MATERIALIZED (
    SELECT nextval('awa.jobs_id_seq') AS id, wanted.at, wanted.unique_key
    FROM (
        SELECT each.at, each.unique_key
        FROM schedule
        JOIN unnest(%(fire_ats)s::timestamptz[], %(unique_keys)s::bytea[]) AS each (at, unique_key)
            ON each.at > schedule.mark
        CROSS JOIN patience  -- so it is set before a key is asked for
        ORDER BY each.at
    ) AS wanted
),
claim AS (
    INSERT INTO awa.job_unique_claims (unique_key, job_id)
    SELECT fire.unique_key, fire.id
    FROM fire
    ORDER BY fire.at
    ON CONFLICT (unique_key) DO NOTHING
    RETURNING job_id
),
marked AS (
    UPDATE awa.cron_jobs AS marking
    SET last_enqueued_at = %(until)s::timestamptz,
        skipped_count = marking.skipped_count
            + (SELECT count(*) FROM fire) - (SELECT count(*) FROM claim)
            + CASE
                WHEN schedule.mark <= %(since)s::timestamptz THEN %(skipped_count)s::bigint
                ELSE 0  -- a rival has been here and counted them
            END
    FROM schedule
    WHERE marking.name = schedule.name
),
job AS (
    INSERT INTO awa.jobs_hot (
        id, kind, queue, args, priority, max_attempts, tags, metadata, unique_key, unique_states
    )
    SELECT
        fire.id,
        schedule.kind,
        schedule.queue,
        schedule.args,
        schedule.priority,
        schedule.max_attempts,
        schedule.tags,
        schedule.metadata - 'awa:unique' || jsonb_build_object('awa:cron', jsonb_build_object(
            'name', schedule.name,
            'fire_at', fire.at
        )),
        fire.unique_key,
        %(unique_states)s::bit(8)
    FROM fire
    JOIN claim ON claim.job_id = fire.id
    CROSS JOIN schedule
    RETURNING id
)
SELECT fire.at, job.id, schedule.queue, holder.job_id
FROM fire
CROSS JOIN schedule
LEFT JOIN job ON job.id = fire.id
LEFT JOIN awa.job_unique_claims AS holder ON holder.unique_key = fire.unique_key
ORDER BY fire.at
