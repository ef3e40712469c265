-- The version of the installed schema: the number of the newest migration file applied.
SELECT max(installed.version)
FROM awa.schema_version AS installed
