"""The runbook sends to panels that are there."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"panels? (\*[^*]+\*(?:(?:,| and|, and) \*[^*]+\*)*)")


def test_panels_of_the_runbook_are_on_a_dashboard():
    boards = [
        json.loads(path.read_text()) for path in (ROOT / "dashboards").glob("*.json")
    ]
    titles = {panel.get("title") for board in boards for panel in board["panels"]}
    runbook = (ROOT / "alerts" / "runbook.md").read_text()
    named = {
        name
        for group in NAMED.findall(runbook)
        for name in re.findall(r"\*([^*]+)\*", group)
    }

    assert named
    assert named - titles == set()
