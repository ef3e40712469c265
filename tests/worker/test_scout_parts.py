"""Scout: when a queue is searched as a whole, and from where a part of it is meanwhile."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest

from awa_django.storage.claim import Place
from awa_django.worker import scout as module
from awa_django.worker.cursor import LONGEST_REST
from awa_django.worker.scout import Scout, _Walk

PAGES = 10_000


class Desk:
    """A scout with a clock of its own, whose searches take as long and read as many pages as a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *queues: str) -> None:
        self.now = 1000.0
        self.claimed = 5
        self.seconds = dict.fromkeys(queues, 0.2)
        self.page_count, self.part_page_count = PAGES, 1
        self.finds: list[Place] = []
        self.searches: list[tuple[str, str]] = []
        self.said: list[tuple[str, float, bool | None]] = []
        cursor: Any = self
        session: Any = self
        self.leaves_out = True
        self.highest_id = 100
        self.others_page_count = 1
        self.newest: dict[str, list[Place]] = {}
        self.newer_than: int | None = None
        monkeypatch.setattr(module, "left_behind", self._left_behind)
        monkeypatch.setattr(module, "newest_left_behind", self._newest_left_behind)
        monkeypatch.setattr(module, "transaction", lambda connection: nullcontext())
        self.scout = Scout(
            session, cursor, excluded_kinds=tuple, on_found=lambda: None, clock=lambda: self.now
        )
        self.use = nullcontext

    def close(self) -> None:
        pass

    def left_out(self) -> dict[str, list[Place]]:
        return {queue: [place(self.claimed)] for queue in self.seconds}

    def was_searched(self, queue: str, found: Any, *, seconds: float, is_long: bool | None) -> None:
        self.said.append((queue, round(seconds, 3), is_long))
        self.found = found

    def _left_behind(
        self,
        connection: Any,
        queue: str,
        places: Any,
        excluded_kinds: Any,
        *,
        since: Any = (),
        of_known: bool = True,
        of_others: bool = True,
    ) -> tuple[list[Place], int]:
        if not of_known:
            self.searches.append((queue, "others"))
            return [], self.others_page_count
        assert of_others == (not since)
        self.searches.append((queue, "part" if since else "whole"))
        self.now += 0.001 if since else self.seconds[queue]
        return self.finds, self.part_page_count if since else self.page_count

    def _newest_left_behind(
        self, connection: Any, places: Any, excluded_kinds: Any, *, newer_than: int | None
    ) -> tuple[dict[str, list[Place]], int]:
        self.newer_than = newer_than
        return self.newest, self.highest_id

    def look(self) -> list[tuple[str, str]]:
        self.searches.clear()
        self.said.clear()
        self.waits = self.scout.look()
        return self.searches


def place(number: int) -> Place:
    return Place(2, datetime(2020, 1, 1, tzinfo=UTC), number)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch, "default")


def wait(desk: Desk, seconds: float) -> None:
    desk.now += seconds


def test_whole_search_rests_for_fifteen_times_as_long_as_it_took(desk: Desk) -> None:
    assert desk.look() == [("default", "whole")]
    assert desk.said == [("default", 0.2, True)]
    wait(desk, 2.99)
    assert desk.look() == [("default", "part"), ("default", "others")]
    assert desk.said == [("default", 0.2, None)]
    wait(desk, 0.02)
    assert desk.look() == [("default", "whole")]


def test_searches_of_all_queues_rest_for_fifteen_times_as_long_as_they_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(monkeypatch, "a", "b")
    desk.look()
    wait(desk, 3.0 - 0.2 + 0.01)  # of the first, which then was alone
    assert desk.look() == [("a", "whole"), ("b", "part"), ("b", "others")]
    wait(desk, 5.9)
    assert desk.look()[0] == ("a", "part")
    wait(desk, 0.1)
    assert desk.look()[0] == ("a", "whole")


def test_rest_has_an_end(desk: Desk) -> None:
    desk.seconds["default"] = 5.0
    desk.look()
    wait(desk, 29.9)
    assert desk.look() == [("default", "part"), ("default", "others")]
    wait(desk, 0.2)
    assert desk.look() == [("default", "whole")]


def test_search_that_has_become_short_is_the_only_one(desk: Desk) -> None:
    desk.look()
    desk.page_count = 3
    wait(desk, 3.01)
    for _ in range(2):
        assert desk.look() == [("default", "whole")]
        assert desk.said == [("default", 0.2, False)]


def test_queue_that_has_nothing_left_out_is_forgotten(desk: Desk) -> None:
    desk.look()
    seconds, desk.seconds = desk.seconds, {}
    assert desk.look() == []
    desk.seconds = seconds
    assert desk.look() == [("default", "whole")]
    assert desk.said == [("default", 0.2, True)]


@pytest.mark.parametrize("step", [1, 7, 30])
def test_part_follows_the_claims_and_is_no_shorter_than_half_of_the_longest(step: int) -> None:
    walk = _Walk([place(1000)])
    lengths = []
    for claimed in range(1000, 3000, step):
        length = claimed - walk.since[0].job_id
        lengths.append(length)
        walk.took(length, 100, [place(claimed)])
    assert lengths[0] == 0
    assert 100 < max(lengths) <= 100 + step
    assert min(lengths[100 // step + 2 :]) >= 50 - step


@pytest.mark.parametrize(("queues", "since"), [("ab", 5), ("abc", 6)], ids=["two", "three"])
def test_parts_of_all_queues_are_as_long_as_one(
    monkeypatch: pytest.MonkeyPatch, queues: str, since: int
) -> None:
    desk = Desk(monkeypatch, *queues)
    desk.look()
    desk.claimed = 6
    desk.part_page_count = module.PART // 2 - 1  # and more than a third
    desk.look()
    assert desk.scout._walks["a"].since == [place(since)]


def test_place_that_does_not_move_keeps_its_part() -> None:
    walk = _Walk(since=[place(1)])
    for _ in range(10):
        walk.took(40, 100, [place(41)])
    assert walk.since == [place(1)]


def test_new_is_what_came_within_two_seconds_at_least(desk: Desk) -> None:
    """Its transaction may end later than a look or many."""
    desk.seconds["default"] = 0.0
    began_at = desk.now
    for number in range(100):
        desk.now = began_at + 0.5 * number
        desk.highest_id = number
        desk.look()
        assert desk.newer_than == (None if number == 0 else max(number - 4, 0))
    assert len(desk.scout._highest_ids) < 10


def test_priorities_without_a_place_rest_with_the_whole_when_they_are_long(desk: Desk) -> None:
    """They may have dead entries, of claims before these."""
    desk.look()
    desk.others_page_count = PAGES
    assert desk.look() == [("default", "part"), ("default", "others")]
    assert desk.look() == [("default", "part")]
    assert desk.scout._walks["default"].since == [place(5)]
    wait(desk, 3.01)
    assert desk.look() == [("default", "whole")]
    assert desk.look() == [("default", "part"), ("default", "others")]


def test_parts_are_searched_once_a_second(desk: Desk) -> None:
    """However quick that is: in a quiet system it would be a reason to do it all the time."""
    desk.look()
    desk.look()
    assert desk.waits == LONGEST_REST


def test_new_ones_are_not_looked_for_while_all_is_searched_each_time(desk: Desk) -> None:
    desk.page_count = 3
    for _ in range(3):
        desk.look()
        assert desk.newer_than is None


def test_old_ones_are_not_taken_for_new_after_a_pause(desk: Desk) -> None:
    desk.look()
    desk.leaves_out = False
    desk.scout._serve()
    desk.look()
    assert desk.newer_than is None


def test_new_ones_are_found_beside_those_of_the_part(desk: Desk) -> None:
    desk.newest = {"default": [place(1)], "other": [place(2)]}
    desk.look()
    assert desk.found == []
    desk.look()
    assert desk.found == [place(1)]


def test_job_that_is_found_soon_says_nothing_about_the_walk(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.look()
    walk = desk.scout._walks["default"]
    wait(desk, 3.01)
    desk.page_count, desk.finds = 3, [place(1)]
    desk.look()
    assert desk.said == [("default", 0.2, False)]
    assert desk.scout._walks["default"] is walk
    assert desk.look() == [("default", "whole")]
