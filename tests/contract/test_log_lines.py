"""The log lines shown in the documentation have the fields of real ones, in their order."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from redrive.observability.logs import JsonFormatter
from redrive.observability.metrics import Metrics
from redrive.rules.attempts.settlement import Outcome
from redrive.worker.held import Batch, held_from
from redrive.worker.protocol import Report
from redrive.worker.round_trip import EPOCH, LaneClaim
from redrive.worker.telemetry import Telemetry

ROOT = Path(__file__).parents[2]
SHOWN = [
    (page.name, json.loads(line))
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for line in page.read_text().splitlines()
    if line.startswith('{"time":')
]
OF_FAILURE = ("error_class", "message", "fingerprint")
OUTCOMES = {outcome.logged: outcome for outcome in Outcome}


def test_some_are_shown():
    assert SHOWN


@pytest.mark.parametrize(("page", "line"), SHOWN)
def test_a_line_in_the_documentation_is_one_that_is_written(
    page: str, line: dict[str, Any], caplog: pytest.LogCaptureFixture
):
    attempt = line["attempt"]
    row = (
        1,
        line["job"],
        line["delivery"],
        attempt,
        line["kind"],
        "{}",
        None,
        EPOCH,
        0.0,
    )
    (held,) = held_from(Batch(1, ["default"]), [LaneClaim(1, 1, EPOCH, 1, 1, 1)], [row])
    report = Report(
        line["job"],
        line["delivery"],
        OUTCOMES[line["event"]],
        line.get("retry_in", 0.0),
        failure=json.dumps({name: line[name] for name in OF_FAILURE} | {"detail": {}}),
        reason=line["reason"],
        category=line["category"],
        trace=line.get("trace_id"),
    )
    caplog.handler.setFormatter(JsonFormatter())
    logging.getLogger("redrive").addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.DEBUG, "redrive"):
            Telemetry(Metrics(), None).ended(held, report)
    finally:
        logging.getLogger("redrive").removeHandler(caplog.handler)
    written = json.loads(caplog.text.splitlines()[-1])

    assert list(line.items())[1:] == list(written.items())[1:], page
