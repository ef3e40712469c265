"""Settings of the example project, from the environment; DATABASE_URL names the PostgreSQL.

manage.py and the tests start an embedded server when it is unset. Without any (a linter, a type
checker) these settings can be read, and Django refuses only what needs a database.
"""

from __future__ import annotations

from pathlib import Path

import environ

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()
DEBUG = env.bool("DEBUG", default=True)
# A key that everybody knows is for DEBUG only; without it the environment must name one.
SECRET_KEY = env.str("SECRET_KEY", default="insecure-demo-key") if DEBUG else env.str("SECRET_KEY")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "testserver"])
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "awa_django",
    "example_project.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
ROOT_URLCONF = "example_project.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {"default": env.db_url("DATABASE_URL") if env.str("DATABASE_URL", default="") else {}}
# A socket's directory comes as ?host=..., where `dbshell` does not look.
if socket_dir := DATABASES["default"].get("OPTIONS", {}).pop("host", None):
    DATABASES["default"]["HOST"] = socket_dir
# Kept for a minute: a worker's threads would open a connection for each job otherwise.
DATABASES["default"] |= {
    "CONN_MAX_AGE": env.int("CONN_MAX_AGE", default=60),
    "CONN_HEALTH_CHECKS": True,
    "DISABLE_SERVER_SIDE_CURSORS": env.bool("DISABLE_SERVER_SIDE_CURSORS", default=False),
}
# What is not in the environment is as awa_django has it.
AWA = {
    "QUEUES": env.list("AWA_QUEUES", default=[]),
    "MAX_ATTEMPTS": env.int("AWA_MAX_ATTEMPTS", default=25),
    "TIMEOUT": env.float("AWA_TIMEOUT", default=None),
    "SHUTDOWN_TIMEOUT": env.float("AWA_SHUTDOWN_TIMEOUT", default=30.0),
    "RETENTION": {
        "completed": env.float("AWA_KEEP_COMPLETED", default=24 * 3600.0),
        "failed": env.float("AWA_KEEP_FAILED", default=7 * 24 * 3600.0),
    },
    "LISTEN_URL": env.str("AWA_LISTEN_URL", default=None),
    "HEALTH": env.str("AWA_HEALTH", default=None),
}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": env.str("LOG_LEVEL", default="WARNING")},
    "loggers": {"awa_django": {"level": env.str("AWA_LOG_LEVEL", default="INFO")}},
}
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
