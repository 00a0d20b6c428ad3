"""Take pictures of every page of the console: `make console-pictures`.

Each page is shown at three widths, dark and light, in build/console. The pictures that
docs show are copied there. This needs chromium.
"""

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from playwright.sync_api import sync_playwright

from redrive.console.app import application, listen
from redrive.console.security.access import Access, Principal, Role
from redrive.console.security.logins import Logins
from redrive.database.address import Address
from redrive.database.connect import OwnConnection
from tools.console import scene
from tools.generated import ROOT
from tools.scratch import scratch_postgres

SIZES = ((390, 800), (820, 1000), (1440, 900))
THEMES = ("light", "dark")
PAGES = {
    "overview": "/",
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
    "edit": "/edit?group=3f9a51d07be2",
    "edit-one": "/edit?id={dead}",
    "pause": "/change/pause?queue=mail",
    "queues": "/queues",
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
SHOWN = {
    ("groups", "light"): "console-groups",
    ("group", "light"): "console-group",
    ("campaign", "dark"): "console-campaign",
}
"""Wide pictures that docs/ has."""


@contextmanager
def served(logins: Logins | dict[str, Logins]) -> Iterator[str]:
    """Serve the console like --demo; yield its address."""
    app: Any = application(Access(everybody=Principal("ada", Role.OPERATOR)), logins)
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(
        uvicorn.Config(app, lifespan="off", log_level="critical", ws="none")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        app.stop()
        server.should_exit = True
        thread.join()
        listener.close()


def main() -> int:
    """Build the scene, and take pictures of all pages."""
    into = ROOT / "build" / "console"
    into.mkdir(parents=True, exist_ok=True)
    with scratch_postgres() as postgres:
        with OwnConnection.connect(postgres.url(), autocommit=True) as conn:
            scene.build(conn)
            ids = conn.execute(
                "select (select max(id) from redrive.dead_letters where kind = 'invoice.charge'),"
                " (select max(id) from redrive.jobs where queue = 'mail')"
            ).fetchone()
        dead, live = ids or (0, 0)
        logins, gone = (
            Logins({Role.OPERATOR: Address(u)}) for u in (postgres.url(), GONE)
        )
        fleet = {"eu": logins, "us": logins, "ap": gone}
        with served(logins) as one, served(fleet) as several, sync_playwright() as run:
            pages = {
                name: one + path.format(dead=dead, live=live)
                for name, path in PAGES.items()
            }
            pages |= {name: several + path for name, path in OF_CELLS.items()}
            browser = run.chromium.launch(
                executable_path=shutil.which("chromium")
                or shutil.which("google-chrome"),
                args=["--no-sandbox"],
            )
            for theme in THEMES:
                for width, height in SIZES:
                    page = browser.new_page(
                        color_scheme=theme,
                        viewport={"width": width, "height": height},
                    )
                    for name, address in pages.items():
                        page.goto(address)
                        page.wait_for_load_state(
                            "networkidle" if name != "campaign" else "load"
                        )
                        page.screenshot(
                            path=into / f"{name}-{width}-{theme}.png", full_page=True
                        )
                        if (name, theme) in SHOWN and (width, height) == SIZES[-1]:
                            page.set_viewport_size({"width": 1200, "height": 640})
                            page.screenshot(
                                path=ROOT / "docs" / f"{SHOWN[name, theme]}.png"
                            )
                            page.set_viewport_size({"width": width, "height": height})
                    page.close()
            browser.close()
        logins.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
