"""Pictures of every page of the admin, from the web demo: light and dark, on a desk and on a telephone.

All of them go to build/screenshots; those that the documentation shows also to docs/images. The demo
runs on a database of its own, which is dropped again.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "screenshots"
IMAGES = ROOT / "docs" / "images"
# Picture in the documentation -> page, scheme and width here.
SHOWN = {
    "shop": "shop-light-1440",
    "admin-dashboard": "dashboard-light-1440",
    "admin-deferred-jobs": "deferredjob-light-1440",
    "admin-hot-jobs": "hotjob-light-1440",
    "admin-job": "failed-job-light-1440",
    "admin-reschedule": "question-light-1440",
}
SIZES = {1440: 900, 390: 844}
# Flat surfaces and smooth letters: more colours are not seen, and with fewer a small red thing turns brown.
COLORS = 256
# Nobody's own directory is in a traceback.
MOVE = """
    UPDATE awa.jobs_hot
    SET errors = ARRAY(
        SELECT replace(entry::text, %s, '/srv/shop')::jsonb
        FROM unnest(errors) WITH ORDINALITY AS element (entry, place)
        ORDER BY place
    )
    WHERE state = 'failed'
"""
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--seconds",
        type=float,
        default=75,
        help="of the demo before (default: 75, so that a whole minute is measured)",
    )
    options = parser.parse_args()
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        sys.exit("Chromium is not installed (apt-get install chromium)")
    with own_database() as url, demo(url) as address:
        time.sleep(options.seconds)
        with psycopg.connect(url) as connection:
            connection.execute(MOVE, [str(ROOT)])
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=executable, args=CHROMIUM)
            page = browser.new_page(base_url=address)
            page.set_default_timeout(180_000)  # nobody waits, and the machine may have other things to do
            take_all(page)
            browser.close()
    for name, source in SHOWN.items():
        shutil.copyfile(BUILD / f"{source}.png", IMAGES / f"{name}.png")
    print(f"{len(list(BUILD.glob('*.png')))} pictures in {BUILD}, {len(SHOWN)} of them in {IMAGES}")


@contextmanager
def own_database() -> Iterator[str]:
    """The URL of an empty database beside the one of DATABASE_URL, or in the embedded server."""
    url = os.environ.get("DATABASE_URL")
    if not url:
        sys.path.insert(0, str(ROOT))
        from example_project.embedded_postgres import ensure_running

        url = ensure_running("dev")
    name = f"awa_screenshots_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def demo(database_url: str) -> Iterator[str]:
    """``manage.py demo --web`` on this database; its address, when it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, str(ROOT / "manage.py"), "demo", "--web", f"--port={port}"]
    process = subprocess.Popen(command, env={**os.environ, "DATABASE_URL": database_url}, cwd=ROOT)
    try:
        give_up_at = time.monotonic() + 300
        while not answers(address):
            if process.poll() is not None or time.monotonic() > give_up_at:
                sys.exit("the demo does not answer: its output says why")
            time.sleep(0.5)
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/admin/login/", timeout=5):
            return True
    except OSError:
        return False


def take_all(page: Any) -> None:
    """Log in, find the pages, and take each."""
    BUILD.mkdir(parents=True, exist_ok=True)
    page.goto("/admin/")
    page.fill("#id_username", "demo")
    page.fill("#id_password", "demo")
    page.click("input[type=submit]")
    page.goto("/admin/awa/")
    links = page.eval_on_selector_all(
        "#content-main a[href^='/admin/awa/']", "links => links.map((link) => link.getAttribute('href'))"
    )
    lists = {name: link for link in links if (name := link.removeprefix("/admin/awa/").strip("/"))}
    urls = {"shop": "/", "admin": "/admin/", **lists}
    failed = last_row(page, "/admin/awa/hotjob/?state=failed")
    urls["failed-job"] = failed
    urls["edit-arguments"] = failed.replace("/change/", "/arguments/")
    urls["scheduled-job"] = last_row(page, "/admin/awa/deferredjob/?state=scheduled")
    for name, url in urls.items():
        page.goto(url)
        take(page, name)
    for name, button in (("question", "Reschedule"), ("deletion", "Delete")):
        page.goto(urls["scheduled-job"])
        page.get_by_role("button", name=button).click()
        take(page, name)


def last_row(page: Any, url: str) -> str:
    """The page of the last job in this list: a deferred one that stays there for long."""
    page.goto(url)
    return str(page.locator("#result_list tbody th a").last.get_attribute("href"))


def take(page: Any, name: str) -> None:
    """The page that is open, in each scheme and size; whole where it is that of one job."""
    for width, height in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(400)  # colours fade, charts are drawn anew
            path = BUILD / f"{name}-{scheme}-{width}.png"
            page.screenshot(path=path, full_page=name in {"dashboard", "failed-job", "scheduled-job"})
            with Image.open(path) as image:
                small = image.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
            small.save(path, optimize=True)


if __name__ == "__main__":
    main()
