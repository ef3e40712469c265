"""The soak's producers, each a process of its own: ``python -m tests.soak.producers NAME SEED RATE``.

Before it asks for anything a producer writes its wish into the ledger, and afterwards the answer. A
wish without an answer may have become a job or not. It ends when the ledger has a file ``stop``.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
import psycopg
from django.db import InterfaceError, OperationalError, connection, transaction
from django.utils import timezone

from awa_django import enqueue_many
from awa_django.enqueue import enqueue
from awa_django.errors import InvalidJob, UniqueConflict
from tests.soak import ledger

TOMORROW = timedelta(days=1)
ACCOUNTS = 12
BATCH_MATES = 8


class Deliberate(Exception):
    """Rolls a transaction back."""


class Producer:
    """Wishes, answers, and jobs of every kind."""

    def __init__(self, name: str, seed: int) -> None:
        from tests.soak import handlers

        self.handlers = handlers
        self.random = random.Random(seed)
        self._tokens = (f"{name}-{os.getpid()}-{number}" for number in itertools.count())

    def wish(self, kind: str, *, later: bool = False, count: int = 1) -> list[str]:
        tokens = list(itertools.islice(self._tokens, count))
        ledger.write("producer", do="wish", kinds=dict.fromkeys(tokens, kind), later=tokens if later else [])
        return tokens

    def item(self) -> tuple[str, Any]:
        """A wish of some kind, and what enqueues it: an ``Item``."""
        h = self.handlers
        later = self.random.random() < 0.05
        job, arguments = self.random.choices(
            [
                (h.quick, {}),
                (h.quick_async, {}),
                (h.slow, {"seconds": round(self.random.uniform(0.5, 6), 1)}),
                (h.fail_once, {}),
                (h.always_fail, {}),
                (h.snooze_once, {}),
                (h.cancel_itself, {}),
                (h.atomic, {}),
                (h.overdue_async, {}),
                (h.instant, {}),
                (h.hold_gil, {}),
                (h.kill_own_process, {}),
                (h.stubborn, {}),
            ],
            weights=[30, 15, 20, 8, 3, 5, 3, 10, 2, 6, 0.15, 0.1, 0.1],
        )[0]
        (token,) = self.wish(job.handler.kind, later=later)
        delay = TOMORROW if later else timedelta(seconds=self.random.choice([0, 0, 0, 1, 3]))
        options = {"delay": delay} if delay else {}
        return token, job.using(**options).item(token=token, **arguments)

    def orm(self) -> None:
        """A row of the project's own and its job in one transaction, some of which are rolled back."""
        from django.contrib.sessions.models import Session

        token, item = self.item()
        fate = self.random.random()
        try:
            with transaction.atomic():
                Session.objects.create(session_key=token, session_data="", expire_date=timezone.now())
                if fate < 0.05:
                    with transaction.atomic():
                        enqueue_many([self.handlers.quick.item(token="not\x00storable")])
                (enqueued,) = enqueue_many([item])
                if fate < 0.15:
                    raise Deliberate
        except (Deliberate, InvalidJob):
            ledger.write("producer", do="refused", tokens=[token])
        else:
            ledger.write("producer", do="committed", ids={token: enqueued.id})

    def single(self) -> None:
        """One job by itself, in no transaction of ours."""
        (token,) = self.wish("soak.quick")
        enqueued = self.handlers.quick.enqueue(token=token)
        ledger.write("producer", do="committed", ids={token: enqueued.id})

    def bulk(self) -> None:
        """Kinds and times mixed, all or none."""
        wishes = [self.item() for _ in range(self.random.randint(5, 40))]
        answers = enqueue_many([item for _, item in wishes])
        ids = {token: answer.id for (token, _), answer in zip(wishes, answers, strict=True)}
        ledger.write("producer", do="committed", ids=ids)

    def unique(self) -> None:
        """One or several unique jobs, many of them duplicates."""
        count = self.random.choice([1, 1, 1, 5])
        tokens = self.wish("soak.unique", count=count)
        items = [
            self.handlers.unique.item(token=token, account=self.random.randrange(ACCOUNTS))
            for token in tokens
        ]
        try:
            if count == 1:
                (item,) = items
                answers = [enqueue(item)]
            else:
                answers = enqueue_many(items)
        except UniqueConflict:  # a rival's transaction ended the wait: all of it is rolled back
            ledger.write("producer", do="refused", tokens=tokens)
            return
        ids = {token: answer.id for token, answer in zip(tokens, answers, strict=True) if answer.created}
        ledger.write("producer", do="committed", ids=ids)
        for token, answer in zip(tokens, answers, strict=True):
            if not answer.created:
                ledger.write("producer", do="duplicate", token=token, holder=answer.holder_id)


class RawProducer(Producer):
    """SQL through the view, from a program that knows nothing of Django."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name, seed)
        self._connection: psycopg.Connection[Any] | None = None
        self._recent: list[int] = []

    def raw(self) -> None:
        connection = self._connection
        if connection is None or connection.closed:
            url = os.environ["DATABASE_URL"]
            connection = self._connection = psycopg.connect(url, autocommit=True, application_name="soak-raw")
        self._recent = self._recent[-50:]
        action: Callable[[psycopg.Connection[Any]], None] = self.random.choices(
            [self._insert, self._poison, self._cancel, self._delete, self._change, self._refused],
            weights=[70, 4, 6, 3, 10, 2],
        )[0]
        action(connection)

    def _insert(self, connection: psycopg.Connection[Any]) -> None:
        kind, arguments, queue = self.random.choice(
            [
                ("soak.quick", "", "default"),
                ("soak.quick", "", "default"),
                ("soak.fail_once", "", "default"),
                ("soak.slow", ', "seconds": 3', "slow"),
                ("soak.atomic", "", "default"),
            ]
        )
        wait = self.random.choice([0, 0, 0, 2, 86_400])
        (token,) = self.wish(kind, later=wait == 86_400)
        row = connection.execute(
            "INSERT INTO awa.jobs (kind, queue, args, run_at) "
            "VALUES (%s, %s, %s::jsonb, now() + make_interval(secs => %s)) RETURNING id",
            [kind, queue, f'{{"token": "{token}"{arguments}}}', wait],
        ).fetchone()
        assert row is not None
        ledger.write("producer", do="committed", ids={token: row[0]})
        self._recent.append(row[0])

    def _poison(self, connection: psycopg.Connection[Any]) -> None:
        """A row that cannot be run, or one that cannot be completed, among good ones of the same batch."""
        kind, limit, key, mask = self.random.choice(
            [
                ("soak.strict", 2, None, None),
                ("soak.rival", 25, b"soak" * 4, "00010000"),  # only in the state `completed` is the key held
            ]
        )
        (bad,) = self.wish(kind)
        good = self.wish("soak.quick", count=BATCH_MATES)
        rows: list[tuple[object, ...]] = [
            ("soak.quick", json.dumps({"token": token}), 25, None, None) for token in good
        ]
        # In their middle: the first one may well be written alone.
        rows.insert(BATCH_MATES // 2, (kind, json.dumps({"token": bad, "number": "none"}), limit, key, mask))
        found = connection.execute(
            "INSERT INTO awa.jobs (kind, args, max_attempts, unique_key, unique_states) "
            "SELECT kind, args, max_attempts, key, mask::bit(8) "
            "FROM unnest(%s::text[], %s::jsonb[], %s::smallint[], %s::bytea[], %s::text[]) "
            "AS wanted (kind, args, max_attempts, key, mask) RETURNING args ->> 'token', id",
            [list(column) for column in zip(*rows, strict=True)],
        ).fetchall()
        ledger.write("producer", do="committed", ids=dict(found))

    def _cancel(self, connection: psycopg.Connection[Any]) -> None:
        self._write(
            connection,
            "cancelled",
            "UPDATE awa.jobs SET state = 'cancelled' WHERE id = %s "
            "AND state IN ('available', 'scheduled', 'retryable', 'running')",
        )

    def _delete(self, connection: psycopg.Connection[Any]) -> None:
        self._write(
            connection,
            "deleted",
            "DELETE FROM awa.jobs WHERE id = %s AND state IN ('available', 'scheduled', 'retryable')",
        )

    def _write(self, connection: psycopg.Connection[Any], done: str, statement: str) -> None:
        if not self._recent:
            return
        job_id = self.random.choice(self._recent[-8:])
        ledger.write("producer", do="change", id=job_id)
        count = connection.execute(statement, [job_id]).rowcount
        ledger.write("producer", do="changed", id=job_id, to=done, count=count)

    def _change(self, connection: psycopg.Connection[Any]) -> None:
        """Slow between its look at a row and its write: a worker claims it in between, most of the time."""
        self._insert(connection)
        connection.execute(
            "UPDATE awa.jobs SET priority = %s WHERE id = ANY(%s) "
            "AND state IN ('available', 'scheduled') AND pg_sleep(0.03) IS NOT NULL",
            [self.random.randint(1, 4), self._recent],
        )

    def _refused(self, connection: psycopg.Connection[Any]) -> None:
        """The view takes no id from outside."""
        (token,) = self.wish("soak.quick")
        try:
            connection.execute(
                "INSERT INTO awa.jobs (id, kind, args) VALUES (%s, 'soak.quick', %s::jsonb)",
                [10**15, f'{{"token": "{token}"}}'],
            )
        except psycopg.OperationalError:
            raise
        except psycopg.Error:
            ledger.write("producer", do="refused", tokens=[token])


def pauses(rate: float, chance: random.Random) -> Iterator[float]:
    """Seconds between two actions, for so many in a second on average."""
    while True:
        yield min(chance.expovariate(rate), 2.0)


def main(name: str, seed: int, rate: float) -> int:
    django.setup()
    producer = (RawProducer if name.startswith("raw") else Producer)(name, seed)
    act: Callable[[], None] = getattr(producer, name.rstrip("0123456789"))
    stop = Path(os.environ[ledger.VARIABLE], "stop")
    for pause in pauses(rate, random.Random(seed + 1)):
        if stop.exists():
            return 0
        try:
            act()
        except (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError):
            # The nemesis's doing: the wish stays without an answer, unless it has one.
            connection.close()
            time.sleep(0.3)
        time.sleep(pause)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
