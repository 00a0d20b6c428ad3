"""The pages as a site: all are in it, and links lead somewhere. `make site` itself is strict."""

from tests.commands import commands
from tools import site
from tools.generated import ROOT

PAGES = {"docs/a.md": "", "docs/b.md": "", "SECURITY.md": ""}


def test_links_to_pages_stay_and_others_lead_to_the_repository_or_nowhere():
    page = "[a](b.md#x) [s](../SECURITY.md) ![p](p.png) [`c`](../service/c.py) [w](https://w.example)"
    here = page.replace("[`c`](../service/c.py)", "`c`")

    assert site.linked(page, "docs/a.md", PAGES, None) == here
    assert "[`c`](https://git.example/x/blob/v" in site.linked(
        page, "docs/a.md", PAGES, "https://git.example/x"
    )


def test_every_page_has_a_place_and_every_command_is_described():
    pages = site.staged()
    places = str(site.nav())

    assert [page for page in pages if f"'{page}'" not in places] == []
    assert [
        name
        for name, _ in commands()
        if f"\n## {name}\n" not in pages["reference/cli.md"]
    ] == []


def test_every_picture_that_a_page_shows_is_on_the_site():
    shown = site.pictures(site.staged())

    assert {"docs/demo.svg", "docs/console-group.png"} <= shown
    assert [picture for picture in shown if not (ROOT / picture).is_file()] == []
