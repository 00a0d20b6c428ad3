"""What goes into an image or runs in CI is named by its contents: names can be moved."""

import hashlib
import re
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
BY_COMMIT = re.compile(r"[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def test_bases_are_named_by_digest():
    """S21."""
    bases = [base for base in IMAGE.findall((ROOT / "Dockerfile").read_text()) if "${" not in base]

    assert bases
    assert [base for base in bases if not BY_DIGEST.fullmatch(base)] == []


def test_actions_are_named_by_commit_and_get_no_more_than_they_need():
    """S21."""
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = file.read_text()
        used = re.findall(r"uses:\s*(.+)", text)

        assert used
        assert [action for action in used if not BY_COMMIT.fullmatch(action)] == []
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
        assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_what_browsers_get_of_others_is_what_was_fetched():
    """htmx as `make vendor` brings it, its licence beside it; nobody has touched either."""
    kept = ROOT / "service" / "redrive" / "console" / "static" / "htmx"
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in kept.iterdir()}

    assert digests == HTMX


def test_what_is_pinned_is_kept_up_to_date():
    """S21."""
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]

    assert {update["package-ecosystem"] for update in updates} == {"docker", "github-actions"}


def test_there_is_a_policy_with_a_private_way_to_report():
    """S21."""
    policy = (ROOT / "SECURITY.md").read_text()

    assert re.findall("^## (.+)", policy, re.MULTILINE) == [
        "Reporting",
        "Supported versions",
        "Scope",
        "What stays open",
    ]
    assert "privately" in policy
    assert [
        path for path in re.findall(r"\]\(([^)#]+)\)", policy) if not (ROOT / path).exists()
    ] == []
