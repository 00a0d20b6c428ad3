"""Whatever values say, they are refused by name or become objects that Kubernetes accepts."""

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from kubernetes_validate import utils

from tests.chart import fuzz
from tests.chart.fakeapi import fake_cluster
from tests.chart.helm import Helm, HelmRefusedError
from tests.chart.test_kubernetes import VERSIONS, read_once

DRAWN = int(os.environ.get("REDRIVE_CHART_FUZZ", "80"))
SHARDS = 2 if DRAWN < 1000 else 20
"""`make chart-fuzz` draws 10,000, in as many processes as there are cores."""


@pytest.fixture(autouse=True, scope="module")
def _schemas_are_read_once() -> Iterator[None]:
    with read_once(utils):
        yield


@pytest.mark.parametrize(
    "shard", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, SHARDS))]
)
def test_values_are_refused_by_name_or_become_valid_objects(
    helm: Helm, shard: int
) -> None:
    """No value passes that fails later, such as a boolean label or an exponent."""

    came_of: Counter[str] = Counter()

    # Shrinking takes minutes, and is not needed to see what is wrong.
    @seed(shard)
    @settings(
        max_examples=DRAWN // SHARDS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(fuzz.values())
    def check(values: fuzz.Values) -> None:
        with fake_cluster() as cluster:
            try:
                release = helm.release("install", cluster, values, name="rel")
            except HelmRefusedError as refused:
                came_of["refused"] += 1
                faults = fuzz.faults_of_a_refusal(str(refused))
            else:
                came_of["installed"] += 1
                # Kubernetes 1.30 has no volumes of images
                supported = VERSIONS["reference: a:1" in release.text :]
                faults = fuzz.faults_of(
                    release, supported[len(release.objects) % len(supported)]
                )
        assert list(faults) == []

    check()
    print(dict(came_of))
