"""Settings come from trials/cluster/run. Without it nothing here is collected: `make test` needs no
cluster.
"""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from trials.cluster.kubernetes import (
    HELMS,
    HERE,
    ROOT,
    Release,
    installed,
    look,
    run,
    unique,
)

IS_ASKED_FOR = "CLUSTER_LOAD_IMAGE" in os.environ and "KUBECONFIG" in os.environ
collect_ignore_glob = [] if IS_ASKED_FOR else ["test_*.py"]
REPOSITORY = "redrive-test"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("cluster")


@pytest.fixture(scope="session")
def images() -> tuple[str, str]:
    """Our image and one derived from it with handlers, tagged by content, both in the cluster."""
    ours = os.environ.get("CLUSTER_IMAGE") or _build(REPOSITORY, ROOT)
    derived = _build(
        f"{REPOSITORY}-shop",
        HERE,
        f"FROM {ours}\nCOPY --chown=0:0 handlers.py /app/shop.py\n",
    )
    # A Postgres that is named may be one that no registry has.
    postgres = (
        [os.environ["CLUSTER_POSTGRES_IMAGE"]]
        if "CLUSTER_POSTGRES_IMAGE" in os.environ
        else []
    )
    for image in (ours, derived, *postgres):
        run(*shlex.split(os.environ["CLUSTER_LOAD_IMAGE"]), image, seconds=300)
    return ours, derived


def _build(repository: str, context: Path, dockerfile: str | None = None) -> str:
    base = os.environ.get("CLUSTER_PYTHON_IMAGE")
    arguments = ["--network", "host"]
    if base and dockerfile is None:
        arguments += ["--build-arg", f"PYTHON_IMAGE={base}"]
    if dockerfile is not None:
        arguments += ["--file", "-"]
    identity = run(
        "docker",
        "build",
        "--quiet",
        *arguments,
        str(context),
        stdin=dockerfile,
        seconds=900,
    ).strip()
    image = f"{repository}:{identity.removeprefix('sha256:')[:12]}"
    run("docker", "tag", identity, image)
    return image


@pytest.fixture(scope="session")
def settings(images: tuple[str, str]) -> list[str]:
    """Options of helm install."""
    ours, derived = images
    repository, _, tag = ours.rpartition(":")
    chosen = {
        "image.repository": repository,
        "image.tag": tag,
        "workers.hungry.image": derived,
    }
    if postgres := os.environ.get("CLUSTER_POSTGRES_IMAGE"):
        chosen["postgres.trial.image"] = postgres
    crds = run("kubectl", "get", "crd", "--output", "name")
    for crd, value in {
        "podmonitors": "podMonitor",
        "servicemonitors": "serviceMonitor",
        "prometheusrules": "prometheusRule",
    }.items():
        if f"{crd}.monitoring.coreos.com" in crds:
            chosen[f"monitoring.{value}.enabled"] = "true"
    pairs = [
        part for name, value in chosen.items() for part in ("--set", f"{name}={value}")
    ]
    return ["--values", str(HERE / "values.yaml"), *pairs]


@pytest.fixture(scope="module", params=HELMS, ids=[Path(helm).name for helm in HELMS])
def release(request: pytest.FixtureRequest, settings: list[str]) -> Iterator[Release]:
    """A release by each Helm, one after the other."""
    with installed(request.param, unique("release"), settings) as release:
        yield release


@pytest.fixture(scope="module")
def fleet(settings: list[str]) -> Iterator[Release]:
    """A release to break."""
    with installed(HELMS[0], unique("fleet"), settings) as release:
        yield release


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the cluster as it was when a test failed."""
    report = (yield).get_result()
    if report.when == "call" and report.failed:
        for name in ("release", "fleet"):
            if name in item.funcargs:
                report.sections.append(("the cluster", look(item.funcargs[name])))
