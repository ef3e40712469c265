-- Whether the schema is here: a project's tests may run without migrations.
-- Index: none, as it reads the catalogue.
SELECT to_regclass('awa.schema_version') IS NOT NULL
