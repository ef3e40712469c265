-- The ended runs of each queue and kind since this table was made. awa.queue_stats forgets after a week; a
-- metric that counts must never go down. One row a queue and kind, updated in place.
CREATE TABLE awa.queue_totals (
    queue text NOT NULL,
    kind text NOT NULL,
    completed_count bigint NOT NULL DEFAULT 0,
    retried_count bigint NOT NULL DEFAULT 0,
    failed_count bigint NOT NULL DEFAULT 0,
    cancelled_count bigint NOT NULL DEFAULT 0,
    wait_seconds double precision NOT NULL DEFAULT 0,
    run_seconds double precision NOT NULL DEFAULT 0,
    wait_histogram bigint[] NOT NULL DEFAULT '{}',
    run_histogram bigint[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (queue, kind)
) WITH (fillfactor = 50);
