"""Take pictures of every page of the console: `make console-pictures`.

Each page is shown at three widths, dark and light, in build/console. The pictures that
docs show are copied there. This needs chromium.
"""

import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from redrive.database.connections.address import Address
from redrive.database.connections.connect import OwnConnection
from redrive.extras.console.app import application
from redrive.extras.console.security.access import Access, Principal, Role
from redrive.extras.console.security.logins import Logins
from redrive.observability.health import listen
from tools.console import scene
from tools.generated import ROOT
from tools.scratch import scratch_postgres

SIZES = ((390, 800), (900, 1000), (1400, 900))
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
INTO = ROOT / "build" / "console"
PAGES = {
    "overview": "/",
    "overview-week": "/?from=7d",
    "groups": "/groups",
    "group": "/groups/3f9a51d07be2",
    "dead-letters": "/dead-letters?kind=invoice.charge",
    "jobs": "/jobs",
    "job": "/find?id={dead}",
    "live-job": "/find?id={live}",
    "campaigns": "/campaigns",
    "campaign": "/campaigns/3",
    "plan": "/campaigns/4",
    "redrive": "/change/redrive?group=7c1e90b2aa41",
    "edit": "/change/edit?group=3f9a51d07be2",
    "edit-one": "/change/edit?id={dead}",
    "pause": "/change/pause?queue=mail",
    "proposals": "/proposals",
    "proposal": "/change/proposal-start?proposal=1",
    "act": "/act?queue=billing",
    "act-confirm": "/act?queue=billing",
    "queues": "/queues",
    "queue": "/queues/billing?from=3h",
    "kinds": "/kinds",
    "kind": "/kinds/mail.send?from=24h",
    "workers": "/workers",
    "breakers": "/breakers",
    "limits": "/limits",
    "schedules": "/schedules",
    "report": "/report",
    "audit": "/audit",
    "nothing": "/dead-letters?kind=no.such",
    "error": "/jobs/999999999",
}
GONE = "host=127.0.0.1 port=1"
OF_CELLS = {
    "cells": "/",
    "cell": "/cells/eu/",
    "cell-redrive": "/cells/eu/change/redrive?group=7c1e90b2aa41",
    "cell-which": "/groups",
}
"""Pages of a console of several databases, one of them out of reach."""
SHOWN: dict[tuple[str, Theme], str] = {
    ("overview", "light"): "console-overview",
    ("queue", "dark"): "console-queue",
    ("groups", "light"): "console-groups",
    ("group", "light"): "console-group",
    ("campaign", "dark"): "console-campaign",
}
"""Wide pictures that docs/ has."""


@contextmanager
def served(logins: Logins | dict[str, Logins]) -> Iterator[str]:
    """Serve the console like --demo; yield its address."""
    app: Any = application(Access(everybody=Principal("ada", Role.OPERATOR)), logins)
    listener = listen(0, "the port", "127.0.0.1")
    server = uvicorn.Server(
        uvicorn.Config(app, lifespan="off", log_level="critical", ws="none")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def main() -> None:
    """Build the scene, and take pictures of all pages."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with ExitStack() as stack:
        pages = addresses(stack)
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=program, args=["--no-sandbox"]
        )
        stack.callback(browser.close)
        INTO.mkdir(parents=True, exist_ok=True)
        for theme in THEMES:
            for size in SIZES:
                take_pictures(browser, pages, theme, size)
        take_shown(browser, pages)
    print(f"{len(pages)} pages are in {INTO.relative_to(ROOT)}")


def addresses(stack: ExitStack) -> dict[str, str]:
    """Build the scene and serve it; return the address of each page by its name."""
    postgres = stack.enter_context(scratch_postgres())
    with OwnConnection.connect(postgres.url(), autocommit=True) as conn:
        scene.build(conn)
        ids = conn.execute(
            "select (select max(id) from redrive.dead_letters where kind = 'invoice.charge'),"
            " (select max(id) from redrive.jobs where queue = 'mail')"
        ).fetchone()
    dead, live = ids or (0, 0)
    logins, gone = (Logins({Role.OPERATOR: Address(u)}) for u in (postgres.url(), GONE))
    stack.callback(logins.close)
    fleet = {"eu": logins, "us": logins, "ap": gone}
    one = stack.enter_context(served(logins))
    several = stack.enter_context(served(fleet))
    pages = {
        name: one + path.format(dead=dead, live=live) for name, path in PAGES.items()
    }
    return pages | {name: several + path for name, path in OF_CELLS.items()}


def take_pictures(
    browser: Browser, pages: dict[str, str], theme: Theme, size: tuple[int, int]
) -> None:
    """Take a picture of every page."""
    page = open_page(browser, theme, size)
    for name, address in pages.items():
        show(page, name, address)
        page.screenshot(path=INTO / f"{name}-{size[0]}-{theme}.png", full_page=True)
    page.close()


def take_shown(browser: Browser, pages: dict[str, str]) -> None:
    """Take the pictures of docs/ anew."""
    for (name, theme), file in SHOWN.items():
        page = open_page(browser, theme, SIZES[-1])
        show(page, name, pages[name])
        page.set_viewport_size({"width": 1240, "height": 780})
        page.screenshot(path=ROOT / "docs" / f"{file}.png")
        page.close()


def open_page(browser: Browser, theme: Theme, size: tuple[int, int]) -> Page:
    """Open a window of a size."""
    width, height = size
    return browser.new_page(
        color_scheme=theme, viewport={"width": width, "height": height}
    )


def show(page: Page, name: str, address: str) -> None:
    """Load a page. The address of a link that acts is new each time: it is followed.

    The page of a campaign asks for itself again and again.
    """
    page.goto(address)
    if name == "act-confirm":
        page.locator("main ul a").first.click()
    page.wait_for_load_state("load" if name == "campaign" else "networkidle")


if __name__ == "__main__":
    main()
