"""The drawings of docs/how-it-works.md show what the code has, and can be read in light and dark."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from awa_django.states import DEFERRED_STATES, JobState
from awa_django.worker import child, supervisor
from awa_django.worker.duty import Duty
from awa_django.worker.leader import DUTIES
from awa_django.worker.options import make_options
from tests.conftest import PROJECT_DIR

IMAGES = PROJECT_DIR / "docs" / "images"
SVG = "{http://www.w3.org/2000/svg}"
PAGE = (PROJECT_DIR / "docs/how-it-works.md").read_text(encoding="utf-8")


def texts(name: str) -> list[str]:
    """What is written in the drawing, but for its style and its description."""
    root = ET.parse(IMAGES / name).getroot()
    return ["".join(element.itertext()).strip() for element in root.iter(f"{SVG}text")]


@pytest.fixture
def worker() -> supervisor.Supervisor:
    made = supervisor.Supervisor(make_options(queues=None, known_queues=["default"]))
    for end in (made._poke, made._poked):
        end.close()
    return made


@pytest.mark.parametrize("path", sorted(IMAGES.glob("*.svg")), ids=lambda path: path.name)
def test_a_drawing_has_a_title_and_is_for_light_and_dark(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    root = ET.fromstring(source)
    assert root.findtext(f"{SVG}title")
    assert root.findtext(f"{SVG}desc")
    light, _, dark = source.partition("@media (prefers-color-scheme: dark)")
    assert light.count("fill:") > 3 < dark.count("fill:")
    # A site shows it as an image: nothing in it may come from elsewhere.
    assert not re.search(r"href|<script|@import|url\((?!#)", source)


def test_every_image_is_shown_somewhere() -> None:
    pages = [PROJECT_DIR / "README.md", *(PROJECT_DIR / "docs").rglob("*.md")]
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [path.name for path in IMAGES.iterdir() if f"images/{path.name})" not in shown] == []


def test_the_path_of_a_job_has_every_state_in_its_table() -> None:
    written = texts("job-path.svg")
    assert set(JobState) - set(written) == {JobState.WAITING_EXTERNAL}
    root = ET.parse(IMAGES / "job-path.svg").getroot()
    place = {"".join(text.itertext()).split()[0]: float(text.get("x", 0)) for text in root.iter(f"{SVG}text")}
    hot = place["awa.jobs_hot"]
    for state in set(JobState) - {JobState.WAITING_EXTERNAL}:
        assert (place[state] < hot) == (state in DEFERRED_STATES), state


def test_the_processes_have_every_service_and_session(worker: supervisor.Supervisor) -> None:
    written = texts("processes.svg")
    names = {service.name for service in worker._services}
    assert names <= set(written)
    sessions = {session for session in written if re.fullmatch(r"\d+ sessions", session)}
    of_child = len(child.session_names("awa")) - 1  # without that of the scout, which is rare
    assert sessions == {"10 sessions", f"{of_child} sessions"}  # the ten: test_docs_connections.py


def test_every_duty_is_in_the_table_with_its_service(worker: supervisor.Supervisor) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| \[([\w ]+)\]\(\.\./awa_django/worker", PAGE, re.MULTILINE))
    done = {service.duty: service.name for service in worker._services if isinstance(service, Duty)}
    assert rows == done
    assert set(done) == set(DUTIES)
