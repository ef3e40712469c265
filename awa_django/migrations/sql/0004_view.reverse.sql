DROP VIEW awa.jobs;
DROP FUNCTION awa.delete_job_through_view();
DROP FUNCTION awa.update_job_through_view();
DROP FUNCTION awa.insert_job_through_view();
