-- The small tables round the queue: pauses, schedules, live processes, leases of duties,
-- catalogues for the admin, and who waits to be woken.

CREATE TABLE awa.queue_meta (
    queue text PRIMARY KEY CHECK (char_length(queue) BETWEEN 1 AND 200),
    paused boolean NOT NULL DEFAULT false,
    paused_at timestamptz,
    paused_by text,
    paused_until timestamptz
);

CREATE TABLE awa.cron_jobs (
    name text PRIMARY KEY CHECK (char_length(name) BETWEEN 1 AND 200),
    cron_expr text NOT NULL,
    timezone text NOT NULL DEFAULT 'UTC',
    kind text NOT NULL CHECK (char_length(kind) BETWEEN 1 AND 200),
    queue text NOT NULL DEFAULT 'default' CHECK (char_length(queue) BETWEEN 1 AND 200),
    args jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(args) = 'object'),
    priority smallint NOT NULL DEFAULT 2 CHECK (priority BETWEEN -98 AND 102),
    max_attempts smallint NOT NULL DEFAULT 25 CHECK (max_attempts BETWEEN 1 AND 1000),
    tags text[] NOT NULL DEFAULT '{}',
    metadata jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    -- The fire time (not the clock time) of the newest job this schedule made, or from which it counts.
    last_enqueued_at timestamptz,
    paused boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- One row per live process: supervisors, and children that name theirs.
CREATE TABLE awa.runtime_instances (
    name text PRIMARY KEY,
    supervisor text,
    hostname text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    queues text[] NOT NULL DEFAULT '{}',
    concurrency integer NOT NULL DEFAULT 0,
    running_count integer NOT NULL DEFAULT 0,
    draining boolean NOT NULL DEFAULT false,
    started_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now()
);

-- A duty of the whole installation is done by whoever holds its row lease. The rows are seeded:
-- taking one is a guarded UPDATE, never an insert race.
CREATE TABLE awa.leaders (
    duty text PRIMARY KEY,
    holder text,
    epoch bigint NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL DEFAULT '0001-02-01 00:00+00'
);
INSERT INTO awa.leaders (duty)
VALUES ('promote'), ('rescue'), ('cron'), ('prune'), ('stats'), ('vacuum');

CREATE TABLE awa.job_kinds (
    kind text PRIMARY KEY,
    queue text,
    last_seen_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE awa.queue_stats (
    minute timestamptz NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    completed_count bigint NOT NULL DEFAULT 0,
    retried_count bigint NOT NULL DEFAULT 0,
    failed_count bigint NOT NULL DEFAULT 0,
    cancelled_count bigint NOT NULL DEFAULT 0,
    wait_seconds double precision NOT NULL DEFAULT 0,
    run_seconds double precision NOT NULL DEFAULT 0,
    PRIMARY KEY (minute, queue, kind)
);

-- Workers whose claimers are idle, and for which queues. A hint only, so unlogged: when it is
-- lost, polling finds the jobs.
CREATE UNLOGGED TABLE awa.waiters (
    worker text PRIMARY KEY,
    queues text[] NOT NULL,
    expires_at timestamptz NOT NULL
);

-- Wake those who wait for one of the queues; nothing is sent when nobody does. The channel is
-- fixed and the queue is the payload: a channel name is limited to 63 bytes.
CREATE FUNCTION awa.wake(due_queues text[])
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_notify('awa_jobs', due.queue)
    FROM (SELECT DISTINCT unnest(due_queues) AS queue) AS due
    WHERE EXISTS (
        SELECT FROM awa.waiters AS waiter
        WHERE waiter.expires_at > now() AND due.queue = ANY (waiter.queues)
    );
    RETURN FOUND;
END
$$;
