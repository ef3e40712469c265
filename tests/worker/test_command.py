"""manage.py awa_worker: from its words to the options of a supervisor."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command

from awa_django.worker.supervisor import Supervisor


@pytest.mark.parametrize(
    ("queues", "strange"),
    [("mail;reports,default:3", ["'mail;reports'"]), ("mail", []), ("default,later:2", []), (None, [])],
)
def test_queue_that_nothing_names_is_warned_of(
    queues: str | None,
    strange: list[str],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings.AWA = {**settings.AWA, "QUEUES": ["later", "mail"]}
    served: list[set[str]] = []
    monkeypatch.setattr(Supervisor, "__init__", lambda self, options: served.append({*options.queues}))
    monkeypatch.setattr(Supervisor, "run", lambda self: 0)
    call_command("awa_worker", queues=queues)
    assert served
    assert [message.partition(":")[0] for message in caplog.messages] == [
        f"--queues {queue}" for queue in strange
    ]
