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
    """O19: the chart was published nowhere."""
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


def test_a_tag_that_is_not_the_charts_version_publishes_nothing(tmp_path: Path) -> None:
    """O19: and says which of the two to change."""
    done, asked = publish("v99.0.0", tmp_path)

    assert done.returncode == 64
    assert "version" in done.stderr
    assert asked == []


def test_the_workflow_has_the_rights_it_needs_and_actions_by_their_contents() -> None:
    """O19: keyless signing asks for an identity, and for nothing else."""
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
