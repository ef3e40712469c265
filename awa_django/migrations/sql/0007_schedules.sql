-- What a schedule does with the fires that it missed, who paused it, and whether any worker still
-- declares it.
ALTER TABLE awa.cron_jobs
    ADD COLUMN missed text NOT NULL DEFAULT 'coalesce'
        CONSTRAINT cron_jobs_missed CHECK (missed IN ('coalesce', 'skip', 'catch_up')),
    -- The most jobs that catching up makes at once.
    ADD COLUMN catch_up_limit smallint NOT NULL DEFAULT 100
        CONSTRAINT cron_jobs_catch_up_limit CHECK (catch_up_limit BETWEEN 1 AND 1000),
    -- Fires for which no job was made, since ever.
    ADD COLUMN skipped_count bigint NOT NULL DEFAULT 0,
    ADD COLUMN paused_at timestamptz,
    ADD COLUMN paused_by text,
    -- When a worker last said that its code declares this schedule; null in a row written by hand,
    -- which stays until it is deleted by hand.
    ADD COLUMN declared_at timestamptz;

-- Workers wrote the rows so far; what none of them declares any more disappears.
UPDATE awa.cron_jobs SET declared_at = now();
