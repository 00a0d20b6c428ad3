"""docs/observability.md shows the table of telemetry.py, and log lines as logs.py writes them."""

import json
import re
from pathlib import Path

from redrive.worker.supervisor import telemetry

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "observability.md"
EVENTS = re.compile(r"(<!-- events:.*?-->\n)(.*?)(<!-- /events -->)", re.DOTALL)


def table() -> str:
    return "".join(
        f"{line}\n" for line in (telemetry.__doc__ or "").splitlines() if line.startswith("|")
    )


def test_the_table_of_events_is_that_of_telemetry():
    found = EVENTS.search(DOCS.read_text())

    assert found
    assert found[2] == table(), "bring it up to date: python -m tests.metrics.test_docs"


def test_every_event_of_the_table_is_a_method():
    names = re.findall(r"^\| (\w+) \|", table(), re.MULTILINE)[1:]

    assert names
    assert [name for name in names if not callable(getattr(telemetry.Telemetry, name, None))] == []


def test_log_lines_are_of_the_form_that_is_written():
    lines = [json.loads(line) for line in DOCS.read_text().splitlines() if line.startswith("{")]

    assert [set(line) >= {"time", "level", "logger", "event", "job", "kind"} for line in lines] == [
        True,
        True,
    ]


def test_links_lead_to_files():
    targets = re.findall(r"\]\(([^)#]+)", DOCS.read_text())

    assert [target for target in targets if not (DOCS.parent / target).exists()] == []


if __name__ == "__main__":
    DOCS.write_text(EVENTS.sub(lambda found: found[1] + table() + found[3], DOCS.read_text()))
