-- What identifies a row of the tables without a primary key: PostgreSQL refuses to delete from a table
-- that is published (CREATE PUBLICATION ... FOR ALL TABLES) and does not say so, and then no job could end.
ALTER TABLE awa.job_unique_claims REPLICA IDENTITY USING INDEX idx_awa_jobs_unique;
ALTER TABLE awa.queue_stats_deltas REPLICA IDENTITY FULL;
