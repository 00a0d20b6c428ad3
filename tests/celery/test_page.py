"""What docs/celery.md shows works as it is typed there."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import pages
from tests.celery.harness import Shop
from tests.cli.conftest import Redrive
from tests.flow.harness import ROOT, Workers, wait_for
from tests.postgres import Database

PAGE = "docs/celery.md"
OWN_TASK = """

@app.task(name="shop.charge")
def charge(invoice):
    if not os.path.exists("mended"):
        raise ValueError("no rate")
"""
"""What a reader has in the module already."""


def write_modules(home: Path) -> None:
    for block in pages.blocks("python"):
        if block.page == PAGE:
            place = home / block.text.splitlines()[0].removeprefix("# ")
            place.parent.mkdir(exist_ok=True)
            # The default is a directory of the whole machine.
            place.write_text(
                block.text.replace("install(app,", "install(app, spool='spool',")
            )
    with (home / "shop" / "celery.py").open("a") as module:
        module.write(OWN_TASK)
    (home / "shop" / "__init__.py").touch()


def typed(start: str, group: str) -> list[list[str]]:
    """Return the arguments of the commands on the page that begin like this."""
    return [
        shlex.split(line.replace("<group>", group))[1:]
        for block in pages.blocks("sh")
        if block.page == PAGE
        for line in block.text.splitlines()
        if line.startswith(start)
    ]


@contextmanager
def celery_worker(home: Path, environment: dict[str, str]) -> Iterator[None]:
    command = [sys.executable, "-m", "celery", "-A", "shop.celery", "worker", "-c", "1"]
    with (home / "log").open("wb") as log:
        worker = subprocess.Popen(
            command, cwd=home, env=environment, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(120)


def test_the_page(shop: Shop, redrive: Redrive, database: Database, workers: Workers):
    write_modules(shop.home)
    own = {"SHOP_BROKER_URL": shop.broker, "SHOP_REDRIVE_URL": database.url}
    with celery_worker(shop.home, os.environ | own | {"C_FORCE_ROOT": "1"}):
        shop.send("shop.charge", 17)
        wait_for(
            lambda: database.value("select count(*) from redrive.dead_letters"), 120
        )
        database.rows("select redrive.fold_groups_v1()")
        (group,) = redrive("dlq", "groups", "--json").lines
        for arguments in typed("redrive dlq explain", group["group"]):
            assert redrive(*arguments).code == 0
        (shop.home / "mended").touch()
        ((_, _, handlers),) = typed("redrive worker", "")
        workers(handlers=handlers, pythonpath=f"{shop.home}:{ROOT}", **own)
        (again,) = typed("redrive dlq redrive", group["group"])
        assert redrive(*again, "--yes").code == 0

        wait_for(
            lambda: (
                database.column("select outcome from redrive.dead_letters")
                == ["succeeded"]
            )
        )
