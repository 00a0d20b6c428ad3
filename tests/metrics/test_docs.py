"""docs/observability.md shows events that there are, and log lines as logs.py writes them."""

import json
import re
from pathlib import Path

from redrive.worker import telemetry
from tools.docs_tables import events

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "observability.md"


def test_every_event_of_the_table_is_a_method():
    names = re.findall(r"^\| (\w+) \|", events(), re.MULTILINE)[1:]

    assert names
    assert [
        name for name in names if not callable(getattr(telemetry.Telemetry, name, None))
    ] == []


def test_log_lines_are_of_the_form_that_is_written():
    lines = [
        json.loads(line)
        for line in DOCS.read_text().splitlines()
        if line.startswith("{")
    ]

    assert [
        set(line) >= {"time", "level", "logger", "event", "job", "kind"}
        for line in lines
    ] == [True, True]


def test_links_lead_to_files():
    targets = re.findall(r"\]\(([^)#]+)", DOCS.read_text())

    assert [target for target in targets if not (DOCS.parent / target).exists()] == []
