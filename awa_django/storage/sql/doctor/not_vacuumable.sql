-- Tables of jobs that this role may not vacuum (PostgreSQL 17 has a privilege for it: MAINTAIN). Asked of
-- the roles that a worker may have only, which can take the duty: it is no business of a reader's.
WITH found (subject) AS (
    SELECT format('awa.%%s', relation.relname)
    FROM pg_class AS relation
    WHERE relation.relnamespace = 'awa'::regnamespace
      AND relation.relname IN ('jobs_hot', 'scheduled_jobs')
      AND has_table_privilege('awa.leaders', 'UPDATE')
      AND NOT pg_has_role(relation.relowner, 'USAGE')
      -- An older server does not know the name of the privilege, and would raise.
      AND NOT CASE
          WHEN current_setting('server_version_num')::integer >= 170000
              THEN has_table_privilege(relation.oid, 'MAINTAIN')
          ELSE false
      END
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
