"""What docs/celery.md shows works as it is typed there."""

import shlex
from pathlib import Path

from tests import pages

TASKS = """

@app.task(name="shop.charge")
def charge(invoice):
    if not __import__("pathlib").Path("mended").exists():
        raise ValueError("no rate")
"""


def write(home: Path) -> None:
    """Write the modules of the page, and a task."""
    for block in pages.blocks("python"):
        if block.page == "docs/celery.md":
            place = home / block.text.splitlines()[0].removeprefix("# ")
            place.parent.mkdir(exist_ok=True)
            place.write_text(block.text)
    with (home / "shop" / "celery.py").open("a") as app:
        app.write(TASKS)
    (home / "shop" / "__init__.py").touch()


def commands(start: str) -> list[list[str]]:
    """Return the commands of the page that begin like this."""
    return [
        shlex.split(line.replace("<group>", "GROUP"))
        for block in pages.blocks("sh")
        if block.page == "docs/celery.md"
        for line in block.text.splitlines()
        if line.startswith(start)
    ]
