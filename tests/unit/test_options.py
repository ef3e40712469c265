"""WorkerOptions: the command line's words become limits, and what is wrong is named."""

from __future__ import annotations

import pickle
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from awa_django.errors import ConfigurationError
from awa_django.worker import options
from awa_django.worker.options import (
    DEFAULT_CONCURRENCY,
    MAX_CONCURRENCY,
    MAX_THREADS,
    WorkerOptions,
    check_threads,
    make_options,
    parse_queues,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail", {"mail": None}),
        ("mail:10,default", {"mail": 10, "default": None}),
        (" mail : 10 , default ", {"mail": 10, "default": None}),
        ("a:b:3", {"a:b": 3}),
        ("é" * 200, {"é" * 200: None}),
    ],
)
def test_queues_are_names_with_limits(text: str, expected: dict[str, int | None]) -> None:
    assert parse_queues(text) == expected


@pytest.mark.parametrize(
    "text", ["", ",", "mail,", "mail,mail", "mail:1,mail:2", ":3", "q" * 201, "a\0b", "\udcff:2"]
)
def test_bad_list_of_queues_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--queues takes"):
        parse_queues(text)


def test_known_queue_with_a_colon_in_its_name_needs_no_number_behind_it() -> None:
    known = ["mail:high", "mail:3"]
    assert parse_queues(" mail:high ", known) == {"mail:high": None}
    assert parse_queues("mail:high:2,mail:3", known) == {"mail:high": 2, "mail": 3}
    with pytest.raises(ConfigurationError, match="--queues mail: the concurrency must be a number"):
        parse_queues("mail:low", known)


@pytest.mark.parametrize("text", ["mail:", "mail:x", "mail:-1", "mail:1.5"])
def test_limit_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--queues mail: the concurrency must be a number"):
        parse_queues(text)


@pytest.mark.parametrize(
    ("queues", "concurrency", "limits", "expected"),
    [
        ("mail:3,default:5", None, {"mail": 3, "default": 5}, 8),
        ("mail:3,default", None, {"mail": 3, "default": 11}, 3 + DEFAULT_CONCURRENCY),
        ("mail,default", None, {"mail": 8, "default": 8}, DEFAULT_CONCURRENCY),
        ("mail:3,default", 4, {"mail": 3, "default": 4}, 4),
        (None, None, {"a": 8, "b": 8}, DEFAULT_CONCURRENCY),
        (None, 2, {"a": 2, "b": 2}, 2),
    ],
)
def test_concurrency_follows_from_the_limits(
    queues: str | None, concurrency: int | None, limits: dict[str, int], expected: int
) -> None:
    options = make_options(queues=queues, known_queues=["a", "b"], concurrency=concurrency)
    assert (dict(options.queues), options.concurrency, options.threads) == (limits, expected, expected)


def test_threads_follow_concurrency_up_to_their_cap() -> None:
    assert make_options(queues="a", known_queues=[], concurrency=1000).threads == MAX_THREADS
    assert make_options(queues="a", known_queues=[], concurrency=1000, threads=3).threads == 3


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"concurrency": 0}, "--concurrency"),
        ({"concurrency": MAX_CONCURRENCY + 1}, "--concurrency"),
        ({"threads": 0}, "--threads"),
        ({"threads": MAX_THREADS + 1}, "--threads"),
        ({"processes": 0}, "--processes"),
        ({"queues": {"mail": 0}}, "--queues mail"),
        ({"max_jobs": 0}, "--max-jobs"),
        ({"max_jobs_per_child": -1}, "--max-jobs-per-child"),
        ({"max_memory_per_child": 0}, "--max-memory-per-child"),
        ({"queues": {}}, "--queues"),
    ],
)
def test_value_out_of_bounds_is_refused_by_its_option(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        WorkerOptions(**{"queues": {"default": 8}, **wrong})


def test_a_bound_of_memory_needs_to_be_told_how_much_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(options, "STATM", tmp_path / "statm")
    with pytest.raises(ConfigurationError, match=r"--max-memory-per-child needs .*statm"):
        make_options(queues="a", known_queues=[], max_memory_per_child=100)


def test_options_reach_the_children_as_they_are() -> None:
    options = make_options(queues="a:2", known_queues=[], max_time=timedelta(minutes=1), max_jobs=5)
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("name", "question", "asked_for"),
    [
        ("gevent.monkey", "is_module_patched", "threading"),
        ("eventlet.patcher", "is_monkey_patched", "thread"),
    ],
)
def test_patched_threads_are_refused(
    name: str, question: str, asked_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_threads()
    patcher = ModuleType(name)
    patched: list[str] = []
    setattr(patcher, question, patched.__contains__)
    monkeypatch.setitem(sys.modules, name, patcher)
    check_threads()  # it is imported and has patched nothing of it
    patched.append(asked_for)
    with pytest.raises(ConfigurationError, match="has patched them"):
        check_threads()
