DROP FUNCTION awa.wake(text[]);
DROP TABLE awa.waiters;
DROP TABLE awa.queue_stats;
DROP TABLE awa.job_kinds;
DROP TABLE awa.leaders;
DROP TABLE awa.runtime_instances;
DROP TABLE awa.cron_jobs;
DROP TABLE awa.queue_meta;
