"""What the pages say to kubectl is there, in a release of the chart."""

import re

from tests import pages
from tests.chart.helm import Release

KINDS = {"cronjob": "CronJob", "deploy": "Deployment", "service": "Service"}
NAMED = re.compile(
    rf"\b({'|'.join(KINDS)})/(?:redrive|try|\$RELEASE)-(?!worker-)([a-z][a-z-]*)"
)
"""Workers are named by whoever installs it."""
LABELS = re.compile(r"app\.kubernetes\.io/(?:name|component)=\w+")


def test_objects_and_labels_that_pages_name(everything: Release) -> None:
    """Here objects are named after `everything`, there after the release: `redrive` or `try`."""
    text = "".join(pages.pages().values())
    named = {f"{KINDS[kind]}/everything-{name}" for kind, name in NAMED.findall(text)}
    labels = {
        f"{name}={value}"
        for each in everything.objects
        for name, value in each["metadata"].get("labels", {}).items()
    }

    assert "CronJob/everything-redrive-template" in named
    assert named - everything.names() == set()
    assert set(LABELS.findall(text)) - labels == set()
