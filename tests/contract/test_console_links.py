"""What an alert links to is there: a page of the console, asked for as it wants to be asked."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml

from redrive.dead_letters.filter import Filter
from redrive.extras.console.app import PARTS
from redrive.extras.console.pages.filters import group_choice
from redrive.jobs.filter import JobFilter
from redrive.verbs.query import Query, parse

HOST = "https://redrive.example"
OF_CELL = "{{ with $labels.cell }}/cells/{{ . }}{{ end }}"
RULES = Path(__file__).parents[2] / "alerts" / "redrive.rules.yaml"
ALERTS = {
    rule["alert"]: rule["annotations"]["console_url"]
    for group in yaml.load(RULES.read_text(), yaml.CSafeLoader)["groups"]
    for rule in group["rules"]
    if "alert" in rule
}
FILTERS: dict[str, Callable[[Query], object]] = {
    "/dead-letters": partial(parse, Filter),
    "/groups": group_choice,
    "/jobs": partial(parse, JobFilter),
}
ROUTES = [route for part in PARTS for route in part.router.routes]
PATHS = {route.path for route in ROUTES if "GET" in route.methods}  # type: ignore[attr-defined]


@pytest.mark.parametrize("alert", ALERTS)
def test_the_console_has_the_page_and_its_filters(alert: str):
    host, of_cell, path = ALERTS[alert].partition(OF_CELL)
    url = urlsplit(re.sub(r"\{\{ \$labels\.\w+ \}\}", "mail", host + path))
    query = parse_qsl(url.query, strict_parsing=bool(url.query))

    assert (host, bool(of_cell)) == (HOST, True)
    assert url.path in PATHS
    assert (
        FILTERS[url.path](query) if query else True
    )  # it refuses what it does not know


def test_an_alert_about_a_queue_leads_to_it():
    about = {name for name, url in ALERTS.items() if "$labels.queue" in url}

    assert {
        "RedriveDeadLettersGrowingFast",
        "RedriveQueueStalled",
        "RedriveRetryingTooLong",
    } <= about
