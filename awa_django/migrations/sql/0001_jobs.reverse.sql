DROP TABLE awa.scheduled_jobs;
DROP TABLE awa.jobs_hot;
DROP SEQUENCE IF EXISTS awa.jobs_id_seq;
DROP TYPE awa.job_state;
DROP TABLE awa.schema_version;
