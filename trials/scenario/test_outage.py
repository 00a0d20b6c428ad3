"""A provider is down for a while: a ticket names the cause long before any job dies, and it resolves.

Everything is as in `test_incident`, also the clock of the rules.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.flow.harness import wait_for

from .test_incident import OLD, Scenario, scenario

__all__ = ["scenario"]

pytestmark = [pytest.mark.scenario, pytest.mark.slow]

ALERT = "RedriveKindFailing"
JOBS = 60


def ticket(scenario: Scenario, status: str) -> dict[str, Any]:
    """Wait for the ticket about the failing kind; return its alert."""

    def found() -> list[dict[str, Any]]:
        return [
            alert
            for told in scenario.pager.tickets
            for alert in told["alerts"]
            if (alert["labels"]["alertname"], alert["status"]) == (ALERT, status)
        ]

    assert scenario.pager.until(found, 180), f"none came: {scenario.pager.tickets}"
    return found()[-1]


def test_an_outage_is_a_ticket_before_any_job_dies_and_ends_with_it(
    scenario: Scenario, tmp_path: Path
) -> None:
    of_owner = ("partners", "--why", "their hooks", "--yes")
    scenario.redrive("owner", "set", "hooks", *of_owner)
    (tmp_path / "down").touch()
    scenario.database.rows(
        "select redrive.enqueue('hook.deliver', queue => 'hooks')"
        " from generate_series(1, %s)",
        JOBS,
    )
    scenario.tell(f"{JOBS} jobs came, and the provider is down")

    alert = ticket(scenario, "firing")
    said = alert["annotations"]["description"]
    scenario.tell(f"a ticket: {said}")
    listed = scenario.redrive("dlq", "groups", "--failing", "--json").splitlines()
    (group,) = map(json.loads, listed)

    assert alert["labels"]["owner"] == "partners"
    assert alert["labels"]["kind"] == "hook.deliver"
    assert re.fullmatch(
        rf"100% of the attempts of kind hook.deliver on queue hooks fail. {JOBS} jobs are"
        r" retried. The main cause since \d\d:\d\d UTC is transient. To see it, type redrive"
        rf" dlq show {group['group']}",
        said,
    ), said
    assert (group["failing"], group["open"], group["owner"]) == (JOBS, 0, "partners")
    told = json.dumps(scenario.pager.events + scenario.pager.tickets)
    assert "hooks.example" not in told, "no text of an error leaves"
    assert not scenario.pager.sent("trigger", "hooks"), "it pages nobody"

    (tmp_path / "down").unlink()
    why = ("--why", "the provider is back", "--yes")
    scenario.tell(scenario.redrive("dlq", "retry", group["group"], *why).strip())
    wait_for(lambda: not scenario.database.value("select count(*) from redrive.jobs"))
    scenario.tell("all jobs have succeeded")
    ticket(scenario, "resolved")
    scenario.tell("the ticket is resolved")

    assert not scenario.redrive("dlq", "groups", "--failing", "--json")
    dead = "select count(*) from redrive.dead_letters"
    assert scenario.database.value(dead) == OLD, "no job of the outage has died"
