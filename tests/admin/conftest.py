"""Users with chosen permissions, and jobs for the pages to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import django
import pytest
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from awa_django.admin.dashboard import shared
from awa_django.storage import dashboard
from tests.admin.browser import SECURE_CSP, in_browser

__all__ = ["in_browser"]

Login = Callable[..., Client]
STRICT = (
    "tests.admin.browser.strict_policy"
    if django.VERSION < (6, 0)
    else "django.middleware.csp.ContentSecurityPolicyMiddleware"
)


@pytest.fixture(autouse=True)
def _nothing_seen() -> Iterator[None]:
    """No test is shown what the dashboard kept of another's rows."""
    cache.clear()
    yield
    cache.clear()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for seconds is no reason for the dashboard to give up, or to look anew."""
    monkeypatch.setattr(dashboard, "STATEMENT_TIMEOUT", timedelta(minutes=1))
    monkeypatch.setattr(shared, "FRESH_FOR", timedelta(hours=1))


@pytest.fixture
def login(db: None) -> Login:
    """``login("view_hotjob", ...)`` is a client of a staff member with these permissions of the app."""

    def log_in(*codenames: str, is_staff: bool = True, **options: Any) -> Client:
        user = User.objects.create_user(f"user-{User.objects.count()}", is_staff=is_staff)
        permissions = Permission.objects.filter(content_type__app_label="awa", codename__in=codenames)
        assert permissions.count() == len(codenames), codenames
        user.user_permissions.set(permissions)
        client = Client(**options)
        client.force_login(user)
        return client

    return log_in


@pytest.fixture
def root(db: None) -> Client:
    """A client of a superuser."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def strict_policy(live_server: LiveServer, settings: Any) -> Iterator[None]:
    """The live server, which may run since an earlier test, answers with a strict policy."""
    handlers: list[Any] = [live_server.thread.httpd.get_app()]
    while hasattr(handlers[-1], "application"):  # what serves files stands round it
        handlers.append(handlers[-1].application)

    def use(middleware: list[str]) -> None:
        settings.MIDDLEWARE = middleware
        for handler in handlers:
            handler.load_middleware()

    usual = settings.MIDDLEWARE
    settings.SECURE_CSP = SECURE_CSP
    use([STRICT, *usual])
    yield
    use(usual)
