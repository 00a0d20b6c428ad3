"""The demo with Prometheus and Alertmanager, which send a page."""

import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive.extras.demo.monitoring import PACKAGES
from tests.demo.conftest import SECONDS, Place, read_until
from tests.demo.test_story import assert_the_story_ends_well, without_what_differs
from tests.flow.harness import ROOT


@pytest.fixture
def programs(tool: Callable[[str], str]) -> None:
    """Require Prometheus and Alertmanager."""
    for program in PACKAGES:
        tool(program)


@pytest.mark.scenario
def test_the_bad_release_pages_and_it_resolves(place: Place, programs: None):
    process = place.start("--once", "--observe")

    said, _ = process.communicate(timeout=SECONDS)

    assert process.returncode == 0, said
    assert "PagerDuty rings\n" in said
    page, rest = said.split("PagerDuty rings\n")[1].split("\n\n", 1)
    shown = dict(
        line.strip().split(maxsplit=1)
        for line in page.replace("dedup key", "dedup_key").splitlines()
    )
    assert list(shown) == [
        "summary",
        "severity",
        "details",
        "runbook",
        "dashboard",
        "console",
        "act",
        "dedup_key",
    ]
    assert shown["summary"].startswith(
        "RedriveDeadLettersGrowingFast on queue payments (shop/redrive): "
    )
    assert shown["severity"] == "critical"
    grown = re.match(
        r"(\d+) jobs of queue payments were dead-lettered .* objective is at most 3\.",
        shown["details"],
    )
    assert grown
    assert 3 < int(grown[1]) <= 10
    assert rest.split("PagerDuty: resolved\n")[1].count(shown["dedup_key"]) == 1
    assert said.count("PagerDuty rings") == 1, (
        "old trouble, a restart and an open breaker page nobody"
    )
    docs = (
        (ROOT / "docs" / "alerting.md")
        .read_text()
        .split("```console\n")[1]
        .split("```")[0]
    )
    assert [
        line
        for line in without_what_differs(docs)
        if line not in without_what_differs(said)
    ] == []
    assert "\x1b" not in said
    assert_the_story_ends_well(said, place)


@pytest.mark.slow
def test_nothing_is_left_of_what_watched(place: Place, programs: None):
    process = place.start("--observe")
    read_until(process, "Prometheus is on")
    watching = [command for command in place.processes() if "--config.file" in command]

    process.kill()
    process.communicate(timeout=SECONDS)

    assert len(watching) == 2
    assert place.what_is_left() == []


@pytest.mark.slow
def test_without_the_programs_it_says_what_to_install_and_goes_on(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(place.environment, "PATH", str(tmp_path))

    process = place.start("--observe")
    said = read_until(process, "orders came in a CSV file")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SECONDS)

    [line] = [line for line in said.splitlines() if "no alerts" in line]
    assert "prometheus and alertmanager not found" in line
    assert "apt-get install prometheus prometheus-alertmanager" in line
    assert re.search(r"http://127.0.0.1:\d+/metrics", line)
    assert place.what_is_left() == []


def test_a_wheel_and_what_it_is_built_from_have_the_rules_and_the_routes(
    tmp_path: Path,
):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", tmp_path],
        cwd=ROOT,
        check=True,
    )
    [wheel], [sdist] = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")

    with zipfile.ZipFile(wheel) as built, tarfile.open(sdist) as source:
        for name in ("redrive.rules.yaml", "alertmanager.example.yml"):
            assert (
                built.read(f"redrive/extras/demo/alerts/{name}")
                == (ROOT / "alerts" / name).read_bytes()
            )
            assert (
                f"{sdist.name.removesuffix('.tar.gz')}/alerts/{name}"
                in source.getnames()
            )
