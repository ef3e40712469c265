#!/usr/bin/env python
"""Django's command line for the example project, with a PostgreSQL of its own when none is named."""

import os
import sys

# These run without a database; all others get the embedded one when DATABASE_URL is unset.
WITHOUT_DATABASE = {"help", "version", "--help", "-h", "--version", "startapp"}


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    command = sys.argv[1] if len(sys.argv) > 1 else "help"
    asks_for_help = not {"--help", "-h"}.isdisjoint(sys.argv)
    if not os.environ.get("DATABASE_URL") and command not in WITHOUT_DATABASE and not asks_for_help:
        from example_project.embedded_postgres import EmbeddedPostgresError, ensure_running

        try:
            # In the environment, so that a worker's children and the autoreloader inherit it.
            os.environ["DATABASE_URL"] = ensure_running("dev")
        except EmbeddedPostgresError as error:
            sys.exit(f"manage.py: {error}")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
