ALTER TABLE awa.queue_stats
    DROP COLUMN wait_histogram,
    DROP COLUMN run_histogram;
ALTER TABLE awa.queue_stats_deltas
    DROP COLUMN wait_bucket,
    DROP COLUMN run_bucket;
