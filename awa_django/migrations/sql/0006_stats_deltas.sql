-- What each finish adds to awa.queue_stats: written in the finish's own statement, so the counts are
-- those of what was committed, whoever dies; only ever inserted, so no worker waits for another. The
-- leader folds it into awa.queue_stats.
CREATE TABLE awa.queue_stats_deltas (
    minute timestamptz NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    completed_count bigint NOT NULL DEFAULT 0,
    retried_count bigint NOT NULL DEFAULT 0,
    failed_count bigint NOT NULL DEFAULT 0,
    cancelled_count bigint NOT NULL DEFAULT 0,
    wait_seconds double precision NOT NULL DEFAULT 0,
    run_seconds double precision NOT NULL DEFAULT 0
) WITH (
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 0
);
