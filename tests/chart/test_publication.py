"""A tagged release is pushed as an OCI artefact, and what was pushed is signed."""

import os
import re
import subprocess
from pathlib import Path

import yaml

from tests.chart.helm import CHART, ROOT

SCRIPT = ROOT / ".ci" / "publish-chart"
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
DIGEST = "sha256:" + "a" * 64
IMAGE = "ghcr.example/me/redrive"
HOME = "https://git.example/me/redrive"
# Instead of helm and cosign, which would publish: they write down what they are asked.
RECORDER = f"""#!/bin/sh
echo "$(basename "$0") $*" >> "$RECORD"
[ "$1" != push ] || echo "Digest: {DIGEST}"
[ "$1" != package ] || cp "$2/Chart.yaml" "$RECORD.chart"
[ "$1" != package ] || cp "$2/values.yaml" "$RECORD.values"
[ "$1" != package ] || cp "$2/README.md" "$RECORD.readme"
"""


def publish(
    tag: str, where: Path
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    record = where / "record"
    for name in ("helm", "cosign"):
        (where / name).write_text(RECORDER)
        (where / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{where}:{os.environ['PATH']}",
        "RECORD": str(record),
    }
    done = subprocess.run(
        [SCRIPT, tag, "ghcr.example/me/charts", HOME, IMAGE],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done, record.read_text().splitlines() if record.exists() else []


def test_a_release_is_signed_by_what_was_pushed_and_says_where_it_comes_from(
    tmp_path: Path,
) -> None:
    """The chart was published nowhere."""
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]

    done, asked = publish(f"v{version}", tmp_path)

    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in asked] == [
        ["helm", "lint"],
        ["helm", "package"],
        ["helm", "push"],
        ["cosign", "sign"],
    ]
    assert asked[2].endswith(" oci://ghcr.example/me/charts")
    assert asked[3] == f"cosign sign --yes ghcr.example/me/charts/redrive@{DIGEST}"
    published = yaml.safe_load((tmp_path / "record.chart").read_text())
    assert (published["home"], published["sources"]) == (HOME, [HOME])
    values = yaml.safe_load((tmp_path / "record.values").read_text())
    assert values["image"] | {"repository": IMAGE, "tag": ""} == values["image"]


def test_the_page_of_a_published_chart_links_to_its_repository(tmp_path: Path) -> None:
    """It is shown where the repository is not beside it."""
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    publish(f"v{version}", tmp_path)

    page = (tmp_path / "record.readme").read_text()
    links = re.findall(r"\]\(([^)]*)\)", page)
    elsewhere = [link for link in links if not link.startswith(("https://", "#"))]
    ours = [link for link in links if link.startswith(HOME)]
    assert elsewhere == []
    for link in ours:
        path = re.sub(rf"{HOME}/(blob|raw)/v{version}/", "", link).partition("#")[0]
        assert (ROOT / path).exists(), link
    for verb in ("install", "upgrade"):
        command = f"helm {verb} redrive oci://ghcr.example/me/charts/redrive --version {version}"
        assert command in page
    assert "OWNER" not in page


def test_a_published_chart_has_what_a_catalogue_shows(tmp_path: Path) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    publish(f"v{version}", tmp_path)

    chart = yaml.safe_load((tmp_path / "record.chart").read_text())
    notes = {
        name.removeprefix("artifacthub.io/"): yaml.safe_load(value)
        for name, value in chart["annotations"].items()
    }
    assert chart["icon"].startswith("data:image/svg+xml")
    assert notes["images"] == [{"name": "redrive", "image": f"{IMAGE}:{version}"}]
    assert len(notes["links"]) == 3
    for shot in notes["screenshots"]:
        path = shot["url"].removeprefix(f"{HOME}/raw/v{version}/")
        assert (ROOT / path).exists(), shot


def test_a_tag_that_is_not_the_charts_version_publishes_nothing(tmp_path: Path) -> None:
    """And says which of the two to change."""
    done, asked = publish("v99.0.0", tmp_path)

    assert done.returncode == 64
    assert "version" in done.stderr
    assert asked == []


def test_the_workflow_has_the_rights_it_needs_and_actions_by_their_contents() -> None:
    """Keyless signing asks for an identity, and for nothing else."""
    workflow = yaml.safe_load(WORKFLOW.read_text())
    job = workflow["jobs"]["chart"]

    assert workflow["permissions"] == {"contents": "read"}
    assert job["permissions"] == {
        "contents": "read",
        "packages": "write",
        "id-token": "write",
    }
    actions = [step["uses"] for step in job["steps"] if "uses" in step]
    assert [a for a in actions if not re.search(r"@[0-9a-f]{40}$", a)] == []
