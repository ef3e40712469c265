"""Arguments that a job declares as secret are masked on its page, whoever knows its kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from awa_django import ConfigurationError, job, registry
from awa_django.models import Job
from tests.factories import insert_job

pytestmark = pytest.mark.django_db

CARD = "4000-1234-1234-1234"


@pytest.fixture
def charge() -> Iterator[Any]:
    @job(kind="tests.charge", secret=["card"])
    def charge(order_id: int, card: str) -> None:
        pass

    yield charge
    registry.unregister(charge.handler)


def page(client: Client, job_id: int) -> str:
    return client.get(reverse("admin:awa_job_change", args=[job_id])).content.decode()


def fail(job_id: int) -> None:
    """What a careless handler leaves."""
    entry = {"error": f"{CARD} was refused", "class": "E", "traceback": f"raise E('{CARD}')", "more": [CARD]}
    values = Job.objects.filter(pk=job_id).values("args", "metadata", "kind").get()
    insert_job(
        "failed", **values, errors=[entry], progress={"message": f"asks for {CARD}"}, result={"card": CARD}
    )
    Job.objects.filter(pk=job_id).delete()


def test_a_kind_that_this_process_does_not_know_is_masked_by_its_metadata(charge: Any, root: Client) -> None:
    job_id = charge.enqueue(order_id=1712, card=CARD).id
    registry.unregister(charge.handler)
    fail(job_id)
    shown = page(root, Job.objects.get().pk)
    assert "1712" in shown
    assert "was refused" in shown
    assert CARD not in shown


def test_a_job_from_before_the_declaration_is_masked_by_its_kind(charge: Any, root: Client) -> None:
    fail(insert_job(kind="tests.charge", args={"order_id": 1712, "card": CARD}))
    shown = page(root, Job.objects.get().pk)
    assert "1712" in shown
    assert CARD not in shown


@pytest.mark.parametrize("stored", ["card", {"card": 1}, [["card"], 7, None], None, 10**400, True])
def test_whatever_the_metadata_say_the_page_is_there(stored: Any, root: Client) -> None:
    job_id = insert_job(args={"card": CARD}, metadata={"awa:secret": stored})
    assert CARD in page(root, job_id)


def test_all_ways_to_enqueue_mark_the_job(charge: Any) -> None:
    charge.enqueue(order_id=1, card=CARD)
    charge.enqueue_many([{"order_id": 2, "card": CARD}])
    charge.using(delay=60, metadata={"mine": 1}).enqueue(order_id=3, card=CARD)
    assert [each["awa:secret"] for each in Job.objects.values_list("metadata", flat=True)] == [["card"]] * 3


def test_a_job_without_secrets_is_not_marked() -> None:
    @job(kind="tests.plain")
    def plain() -> None:
        pass

    try:
        assert Job.objects.get(pk=plain.enqueue().id).metadata == {}
    finally:
        registry.unregister(plain.handler)


@pytest.mark.parametrize("secret", ["card", 7, ["cards"], [1]])
def test_a_declaration_that_names_no_argument_is_refused(secret: Any) -> None:
    with pytest.raises(ConfigurationError, match="secret"):

        @job(kind="tests.wrong", secret=secret)
        def wrong(card: str) -> None:
            pass
