ALTER TABLE awa.cron_jobs
    DROP COLUMN missed,
    DROP COLUMN catch_up_limit,
    DROP COLUMN skipped_count,
    DROP COLUMN paused_at,
    DROP COLUMN paused_by,
    DROP COLUMN declared_at;
