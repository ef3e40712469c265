-- Jobs whose id is in both tables.
-- Params: after_id, last_id (between them, the last one too; null: without a bound).
-- Index: jobs_hot_pkey, then scheduled_jobs_pkey, one probe a row: as a join it may read a whole table, and an id
-- that is equal instead of bounded from both sides has no order that only this index gives.
WITH found (subject) AS (
    SELECT hot.id
    FROM awa.jobs_hot AS hot
    WHERE (%(after_id)s::bigint IS NULL OR hot.id > %(after_id)s::bigint)
      AND (%(last_id)s::bigint IS NULL OR hot.id <= %(last_id)s::bigint)
      AND (
          SELECT true
          FROM awa.scheduled_jobs AS deferred
          WHERE deferred.id >= hot.id AND deferred.id <= hot.id
          ORDER BY deferred.id
          LIMIT 1
      )
    ORDER BY hot.id
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
