-- How the waits and runs of ended runs are spread (awa_django/histogram.py has the bounds). A delta is of
-- one bucket of each; the rollup counts per bucket. NULL, as in the rows of before: not known.
ALTER TABLE awa.queue_stats_deltas
    ADD COLUMN wait_bucket smallint,
    ADD COLUMN run_bucket smallint;
ALTER TABLE awa.queue_stats
    ADD COLUMN wait_histogram integer[],
    ADD COLUMN run_histogram integer[];
