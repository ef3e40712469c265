"""A background job queue inside the project's own PostgreSQL."""
