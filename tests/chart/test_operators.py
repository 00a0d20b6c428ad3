"""What an operator types on a bad day works with the objects of a release."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import pages
from tests.chart.conftest import Render
from tests.chart.fakeapi import FakeCluster
from tests.chart.helm import Helm
from tests.chart.rendered import LOGINS
from tests.programs import missing

PODS = "-l app.kubernetes.io/name=redrive,app.kubernetes.io/component=worker"
MINIMUM = {
    "KEDA": "2.17.1",
    "the Prometheus operator": "0.66",
    "Prometheus": "2.42",
    "Kubernetes": "1.30",
}


def section(page: str, heading: str) -> str:
    """The text below a heading of a page."""
    found = re.search(
        rf"^## {heading}\n(.*?)(?=^## |\Z)",
        pages.pages()[page],
        re.MULTILINE | re.DOTALL,
    )
    assert found, f"{page} has no section {heading}"
    return found[1]


def first_block(page: str, heading: str) -> str:
    """The first commands below a heading."""
    found = re.search(r"```(?:bash|sh)\n(.*?)```", section(page, heading), re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def shell(cluster: FakeCluster, tmp_path: Path) -> Any:
    """Run commands of a page with kubectl against the cluster; helm prints the hooks."""
    if not shutil.which("kubectl"):
        missing("kubectl", "https://kubernetes.io/docs/tasks/tools")
    (tmp_path / "kubeconfig").write_text(cluster.kubeconfig)

    def run(commands: str, hooks: str = "", **variables: str) -> str:
        (tmp_path / "hooks").write_text(hooks)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "KUBECONFIG": str(tmp_path / "kubeconfig"),
        }
        script = f"helm() {{ cat {tmp_path}/hooks; }}\n{commands}"
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            env=environment | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_runbook_shows_the_queues_of_every_pool(
    helm: Helm, cluster: FakeCluster, shell: Any
) -> None:
    """It looked for a variable that a pool of all queues does not have."""
    pools = {"all": {"handlers": "a:b"}, "some": {"handlers": "a:b", "queues": ["x"]}}
    helm.release("install", cluster, {"database": LOGINS, "workers": pools}, name="rel")
    commands = first_block("alerts/runbook.md", "RedriveQueueUnserved").splitlines()
    command = next(line for line in commands if "REDRIVE_QUEUES" in line)

    shown = shell(command, NS="jobs", PODS=PODS)

    rows = {line.split()[0]: line.split()[-1] for line in shown.splitlines()}
    assert rows["POOL"] == "QUEUES"
    assert rows["rel-worker-all"] == "<none>"
    assert rows["rel-worker-some"] == "x"


@pytest.mark.parametrize(
    "owner",
    [{"url": "postgresql://owner:secret@db/app"}, {"existingSecret": "owner"}],
    ids=["a Secret of the chart", "a Secret of yours"],
)
def test_the_migration_runs_again_as_the_owner(
    helm: Helm, cluster: FakeCluster, shell: Any, owner: dict[str, str]
) -> None:
    """No command could, because Helm deletes the Job and the owner's Secret."""
    values = {
        "database": LOGINS | {"owner": owner},
        "queues": {"mail": {"objectives": {"dlq_added_5m": 3}}},
        "workers": {"mail": {"handlers": "a:b"}},
    }
    release = helm.release("install", cluster, values, name="redrive")
    cluster.changes.clear()
    hooks = "".join(f"---\n{hook['manifest']}\n" for hook in release.hooks)

    commands = first_block("docs/kubernetes.md", "Migrate by hand")
    until_it_runs, _, _ = commands.partition("kubectl wait")
    shell(until_it_runs, hooks)

    created = {(kind, name) for verb, kind, name in cluster.changes if verb == "create"}
    made = {"redrive-database-owner"} if "url" in owner else set[str]()
    assert created == {("Job", "redrive-migrate"), *(("Secret", n) for n in made)}
    job = release.get("Job", "redrive-migrate")["spec"]["template"]["spec"]
    used = {v["secret"]["secretName"] for v in job["volumes"] if "secret" in v}
    assert used == (made or {"owner"})


def test_the_notes_set_the_variables_of_the_runbook(render: Render) -> None:
    """`$RELEASE` was the release, and objects were named by fullnameOverride."""
    console = {
        "enabled": True,
        "tokens": {"existingSecret": "console"},
        "logins": {"viewer": {"existingSecret": "viewer"}},
    }
    values = {"database": LOGINS, "fullnameOverride": "other", "console": console}
    release = render(values, name="rel")

    assert "NS=jobs; RELEASE=other; Q=" in release.notes
    named = re.findall(r"\$RELEASE-([a-z-]+)", pages.pages()["alerts/runbook.md"])
    there = {name.partition("/")[2] for name in release.names()}
    assert named
    assert {f"other-{name}" for name in named} - there == set()


@pytest.mark.parametrize("workers", [{}, {"mail": {"handlers": "a:b"}}])
def test_no_policy_selects_pods_that_the_release_does_not_have(
    render: Render, workers: dict[str, Any]
) -> None:
    """A release without pools had a policy for workers."""
    release = render({"database": LOGINS, "workers": workers})

    policies = release.names("NetworkPolicy")
    assert ("rel-worker" in policies) == bool(workers)


@pytest.mark.parametrize(
    "page", ["docs/kubernetes.md", "docs/compatibility.md", "helm/redrive/README.md"]
)
def test_pages_name_the_oldest_versions_that_know_the_fields_in_use(page: str) -> None:
    """KEDA's oldest version was not named.

    `fallback.behavior` came with KEDA 2.17, and 2.17.0 refuses a trigger without
    `metricType`. `keep_firing_for` came with Prometheus 2.42 and its operator 0.66.
    """
    text = " ".join(pages.pages()[page].split())
    row = {
        name: f"| {name} | {version} or newer |" for name, version in MINIMUM.items()
    }
    missing_here = [
        name
        for name, version in MINIMUM.items()
        if f"{name} {version} or newer" not in text and row[name] not in text
    ]

    assert missing_here == []
