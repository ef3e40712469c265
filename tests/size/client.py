"""Who opens the pages: a member of the staff with each permission, whom Django asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib.auth.models import Permission, User
from django.test import Client
from django.test.utils import setup_test_environment, teardown_test_environment


@contextmanager
def staff_client() -> Iterator[Client]:
    """A client that is logged in, not as a superuser: their permissions cost no statement."""
    setup_test_environment()
    user, _ = User.objects.get_or_create(username="size", defaults={"is_staff": True})
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="awa"))
    client = Client()
    client.force_login(user)
    try:
        yield client
    finally:
        user.delete()
        teardown_test_environment()
