"""What autoscalers ask, what Prometheus answers them, and how many pods that makes.

The queries are those of the rendered chart, answered by Prometheus's own engine. What KEDA and the
HPA make of an answer is derived from their sources, which are named at the functions.
"""

import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.chart.conftest import Render
from tests.programs import missing
from tests.promql import ask

SLOTS, MOST, FALLBACK = 16, 10, 3
KEDA = {
    "type": "keda",
    "minReplicas": 0,
    "maxReplicas": MOST,
    "keda": {
        "fallbackReplicas": FALLBACK,
        "prometheus": {"serverAddress": "http://prometheus:9090", "maxWaitSeconds": 60},
    },
}
SHOP = 'namespace="jobs", job="rel", instance="exporter"'


class Queries(NamedTuple):
    """What KEDA asks for a pool."""

    load: str
    wait: str


@pytest.fixture
def queries(render: Render) -> Callable[..., Queries]:
    """Those of a pool of these queues; all queues without."""

    def of(*queues: str) -> Queries:
        pool = {
            "handlers": "app:jobs",
            "queues": list(queues),
            "slots": SLOTS,
            "autoscaling": KEDA,
        }
        logins = {"owner", "worker", "operator"}
        database = {login: {"existingSecret": login} for login in logins}
        release = render({"database": database, "workers": {"mail": pool}})
        spec = release.get("ScaledObject", "rel-worker-mail")["spec"]
        assert spec["fallback"] == {
            "failureThreshold": 3,
            "replicas": FALLBACK,
            "behavior": "currentReplicasIfHigher",
        }
        triggers = [trigger["metadata"] for trigger in spec["triggers"]]
        assert {each["ignoreNullValues"] for each in triggers} == {"false"}
        return Queries(*(each["query"] for each in triggers))

    return of


@pytest.fixture
def answer(tmp_path: Path) -> Callable[[Mapping[str, str], str], float | None]:
    """What KEDA takes from Prometheus's answer.

    pkg/scalers/prometheus_scaler.go, ExecutePromQuery: no series with ignoreNullValues false is an
    error (None here), several are one, too.
    """
    promtool = shutil.which("promtool") or missing(
        "promtool", "apt-get install prometheus"
    )

    def get(series: Mapping[str, str], query: str) -> float | None:
        values = ask(promtool, tmp_path, series, query, minute=10)
        assert len(values) <= 1, "KEDA takes one value"
        return values[0] if values else None

    return get


def figures(
    queue: str, *, ready: int = 0, running: int = 0, wait: int = 0, paused: bool = False
) -> dict[str, str]:
    """What the exporter shows of a queue, for ten minutes."""
    labels = f'{SHOP}, queue="{queue}"'
    return {
        f'redrive_queue_depth{{{labels}, state="ready"}}': f"{ready}x20",
        f'redrive_queue_depth{{{labels}, state="running"}}': f"{running}x20",
        f'redrive_queue_depth{{{labels}, state="scheduled"}}': "1000x20",
        f"redrive_queue_oldest_ready_age_seconds{{{labels}}}": f"{wait}x20",
        f"redrive_queue_paused{{{labels}}}": f"{int(paused)}x20",
    }


THERE = {f"redrive_stats_timestamp_seconds{{{SHOP}}}": "1x20"}


def hpa(load: float | None, current: int, target: float = SLOTS) -> int:
    """Pods that an AverageValue of an external metric makes.

    Kubernetes, pkg/controller/podautoscaler: computeStatusForExternalMetric and
    GetExternalPerPodMetricReplicas: ceil(sum / target), unless within 10 % of what is there; a
    metric that cannot be had changes nothing.
    """
    if load is None:
        return current
    if current and abs(load / (target * current) - 1) <= 0.1:
        return current
    return min(MOST, max(1, math.ceil(load / target)))


def keda(load: float | None, current: int, failures: int = 0) -> int:
    """Pods that KEDA makes, once cooled down.

    pkg/fallback/fallback.go: past failureThreshold errors in a row the metric is fallback.replicas
    times the target (AverageValue only), here no fewer than there are: currentReplicasIfHigher.
    pkg/scaling/executor/scale_scaledobjects.go, RequestScale: with nothing active and no error
    down to minReplicaCount; with an error and a fallback to its replicas.
    """
    if load is None:
        fallen_back = max(FALLBACK, current)
        return fallen_back if failures > 3 or not current else current
    return hpa(load, current) if load > 0 else 0


def test_without_figures_there_is_no_answer_and_no_pod_is_taken_away(
    queries: Callable[..., Queries], answer: Callable[..., float | None]
) -> None:
    """0 was read while the exporter was away, so KEDA scaled to the fewest."""
    for asked in queries("mail"):
        assert answer({'up{job="rel"}': "0x20"}, asked) is None
        stopped = dict.fromkeys(figures("mail") | THERE, "500x5 stale")
        assert answer(stopped, asked) is None

    assert keda(None, current=8) == 8
    assert keda(None, current=8, failures=4) == 8
    assert keda(None, current=1, failures=4) == FALLBACK
    assert keda(None, current=0, failures=4) == FALLBACK
    assert hpa(None, current=8) == 8


def test_a_queue_without_jobs_yet_is_0_and_no_error(
    queries: Callable[..., Queries], answer: Callable[..., float | None]
) -> None:
    """The wait of a queue that nobody has enqueued to was an error to KEDA."""
    for asked in (*queries("mail"), *queries()):
        assert answer(THERE, asked) == 0
    for asked in queries("mail"):
        assert answer(THERE | figures("other", ready=100, wait=900), asked) == 0

    assert keda(0, current=2) == 0


def test_a_paused_queue_needs_pods_only_for_what_runs(
    queries: Callable[..., Queries], answer: Callable[..., float | None]
) -> None:
    """The wait ignored the pause, and the load what still ran."""
    load, wait = queries()
    paused = THERE | figures("mail", ready=500, running=5, wait=900, paused=True)

    assert answer(paused, load) == 5
    assert answer(paused, wait) == 0
    assert keda(5, current=8) == 1, "the HPA takes pods away slowly, and they drain"

    both = paused | figures("bulk", ready=40, running=8, wait=30)
    assert answer(both, load) == 53
    assert answer(both, wait) == 30


def test_a_pool_is_scaled_by_its_own_queues_and_namespace(
    queries: Callable[..., Queries], answer: Callable[..., float | None]
) -> None:
    foreign = {
        name.replace('namespace="jobs"', 'namespace="foreign"'): text
        for name, text in figures("mail", ready=900, wait=900).items()
    }
    series = THERE | foreign
    for name, ready in (
        ("mail", 20),
        ("mail.bulk", 12),
        ("mailxbulk", 700),
        ("billing", 70),
    ):
        series |= figures(name, ready=ready, wait=ready)

    load, wait = queries("mail", "mail.bulk")

    assert answer(series, load) == 32
    assert answer(series, wait) == 20
    assert keda(32, current=1) == 2


def test_two_exporters_during_a_rollout_count_once(
    queries: Callable[..., Queries], answer: Callable[..., float | None]
) -> None:
    one = THERE | figures("mail", ready=30, running=2, wait=10)
    two = {name.replace('"exporter"', '"next"'): text for name, text in one.items()}

    assert [answer(one | two, asked) for asked in queries("mail")] == [32, 10]


def test_the_hpa_adds_up_the_queues_of_its_pool_only(render: Render) -> None:
    """It summed all queues of the namespace."""
    pools = {
        "mail": {"queues": ["mail", "mail.bulk"]},
        "every": {},
        "own": {
            "queues": ["mail"],
            "autoscaling": {
                "type": "hpa",
                "hpa": {"externalMetricLabels": {"pool": "own"}},
            },
        },
    }
    common = {"handlers": "app:jobs", "autoscaling": {"type": "hpa"}}
    database = {
        login: {"existingSecret": login} for login in ("owner", "worker", "operator")
    }
    release = render(
        {
            "database": database,
            "workers": {name: common | pool for name, pool in pools.items()},
        }
    )

    def selector(pool: str) -> object:
        (metric,) = release.get("HorizontalPodAutoscaler", f"rel-worker-{pool}")[
            "spec"
        ]["metrics"]
        return metric["external"]["metric"]["selector"]

    queues = {"key": "queue", "operator": "In", "values": ["mail", "mail.bulk"]}
    here = {"namespace": "jobs"}
    assert selector("mail") == {"matchLabels": here, "matchExpressions": [queues]}
    assert selector("every") == {"matchLabels": here}
    assert selector("own") == {"matchLabels": {"pool": "own"}}
