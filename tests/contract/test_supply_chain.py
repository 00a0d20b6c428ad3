"""What goes into an image or runs in CI is named by its contents: names can be moved."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
IMAGE = re.compile(r"^(?:FROM|ARG \w*IMAGE=)\s*(\S+)", re.MULTILINE)
HTMX = {
    "LICENSE": "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
    "htmx.min.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
}
"""The digests of what tools/vendor wrote."""
BY_DIGEST = re.compile(r".+:.+@sha256:[0-9a-f]{64}")
UNCHECKED_HASH = 0b01
"""The flags of byte code that holds the hash of its source, which no import compares."""
BY_COMMIT = re.compile(r"[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def test_bases_are_named_by_digest():
    bases = [
        base
        for base in IMAGE.findall((ROOT / "Dockerfile").read_text())
        if "${" not in base
    ]

    assert bases
    assert [base for base in bases if not BY_DIGEST.fullmatch(base)] == []


def test_byte_code_in_the_image_has_no_time_in_it(tmp_path):
    """Two builds of one commit have the same digest. See PEP 552 for the header."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    commands = re.findall(
        r"python3? (.*-m compileall [^'/\\]*?) (?=-x|/|\\)", dockerfile
    )
    assert len(commands) == dockerfile.count("compileall") == 2

    for place, command in enumerate(commands):
        source = tmp_path / str(place) / "module.py"
        source.parent.mkdir()
        source.write_text("a = 1\n")
        subprocess.run([sys.executable, *command.split(), source.parent], check=True)
        (compiled,) = source.parent.rglob("*.pyc")
        flags = int.from_bytes(compiled.read_bytes()[4:8], "little")
        assert flags == UNCHECKED_HASH, command


def test_actions_are_named_by_commit_and_get_no_more_than_they_need():
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = file.read_text()
        used = re.findall(r"uses: (?!\./)(.+)", text)

        assert used
        assert [action for action in used if not BY_COMMIT.fullmatch(action)] == []
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
        assert text.count("actions/checkout@") == text.count(
            "persist-credentials: false"
        )


def test_what_browsers_get_of_others_is_what_was_fetched():
    """htmx as `make vendor` brings it, its licence beside it; nobody has touched either."""
    kept = ROOT / "service" / "redrive" / "extras" / "console" / "static" / "htmx"
    digests = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in kept.iterdir()
    }

    assert digests == HTMX


RELEASE = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())[
    "jobs"
]
MAY_WRITE = {
    "package": {"id-token", "attestations"},
    "registry": {"id-token"},
    "image": {"packages", "id-token"},
    "chart": {"packages", "id-token"},
    "release": {"contents"},
}
"""What each part of a release may do: to sign is to have an identity."""


def test_a_release_is_published_after_all_tests_and_by_jobs_that_may_do_no_more_than_that():
    """And what is told last is there already."""
    rights = {
        name: {
            right
            for right, level in job.get("permissions", {}).items()
            if level == "write"
        }
        for name, job in RELEASE.items()
    }

    assert {name: found for name, found in rights.items() if found} == MAY_WRITE
    assert RELEASE["tests"]["uses"] == "./.github/workflows/ci.yml"
    assert [name for name in MAY_WRITE if "tests" not in _before(name)] == []
    assert _before("release") == RELEASE.keys() - {"release"}


def _before(job: str) -> set[str]:
    needs = RELEASE[job].get("needs", [])
    direct = {needs} if isinstance(needs, str) else set(needs)
    return direct.union(*(_before(name) for name in direct))


def test_an_image_is_for_both_processors_and_says_what_it_is_made_of():
    steps = {
        step.get("uses", "").partition("@")[0]: step
        for step in RELEASE["image"]["steps"]
    }
    asked = steps["docker/build-push-action"]["with"]
    times = steps["docker/build-push-action"]["env"]

    assert asked["platforms"] == "linux/amd64,linux/arm64"
    assert (asked["sbom"], asked["provenance"]) == (True, "mode=max")
    assert asked["outputs"] == "type=registry,rewrite-timestamp=true"
    assert times["SOURCE_DATE_EPOCH"] == "${{ steps.name.outputs.epoch }}"
    named = set(
        re.findall(r"^ARG (\w+)=", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    )
    assert set(re.findall(r"^(\w+)=", asked["build-args"], re.MULTILINE)) <= named


def test_what_is_pinned_is_kept_up_to_date():
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())[
        "updates"
    ]

    assert {update["package-ecosystem"] for update in updates} == {
        "docker",
        "github-actions",
    }


def test_there_is_a_policy_with_a_private_way_to_report():
    policy = (ROOT / "SECURITY.md").read_text()

    assert re.findall("^## (.+)", policy, re.MULTILINE) == [
        "Reporting",
        "Supported versions",
        "Scope",
        "What stays open",
    ]
    assert "privately" in policy
    assert [
        path
        for path in re.findall(r"\]\(([^)#]+)\)", policy)
        if not (ROOT / path).exists()
    ] == []
