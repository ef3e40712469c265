"""A Wagtail site whose tasks go through our backend: what Wagtail's own project template sets, and TASKS."""

from __future__ import annotations

import os
from pathlib import Path

import environ

DATABASES = {"default": environ.Env().db("DATABASE_URL")}
SECRET_KEY = "only for this test"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "tests.thirdparty.wagtail_urls"
MEDIA_ROOT = Path(os.environ["WAGTAIL_MEDIA"])
MEDIA_URL = "/media/"
STATIC_URL = "/static/"
WAGTAIL_SITE_NAME = "shop"
WAGTAILADMIN_BASE_URL = "http://localhost"

INSTALLED_APPS = [
    "awa_django",
    "wagtail.contrib.redirects",
    "wagtail.sites",
    "wagtail.users",
    "wagtail.documents",
    "wagtail.images",
    "wagtail.search",
    "wagtail.admin",
    "wagtail",
    "modelcluster",
    "taggit",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
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
TASKS = {"default": {"BACKEND": "awa_django.tasks_backend.AwaBackend", "QUEUES": []}}
