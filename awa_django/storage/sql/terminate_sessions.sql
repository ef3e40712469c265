-- End the database sessions of a dead process; returns how many are (still) there.
-- Params: application_names.
-- Only in this database: whoever has the same name in another one is not ours.
-- A server goes on with a statement whose client was killed: a claim could commit after its rescue.
SELECT count(pg_terminate_backend(activity.pid))
FROM pg_catalog.pg_stat_activity AS activity
WHERE activity.datname = current_database()
  AND activity.application_name = ANY (%(application_names)s::text[])
  AND activity.pid <> pg_backend_pid()
