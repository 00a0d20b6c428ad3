"""Values that cannot work are refused before anything is installed, by a message that names the
field.
"""

from typing import Any

import pytest

from tests.chart.conftest import Render
from tests.chart.helm import HelmRefusedError

LOGINS = {login: {"existingSecret": login} for login in ("owner", "worker", "operator")}


def pool(**properties: Any) -> dict[str, Any]:
    return {"workers": {"mail": {"handlers": "a:b"} | properties}}


def keda(trigger: str, **properties: Any) -> dict[str, Any]:
    return pool(autoscaling={"type": "keda", "keda": {"trigger": trigger} | properties})


@pytest.mark.parametrize(
    ("values", "says"),
    [
        # rules over several values
        ({"database": {}}, "database.owner: set existingSecret (or url); or"),
        (
            {"database": {"owner": {"url": "postgresql://h/d"}}},
            "database.worker: set existingSecret (or url); or",
        ),
        (
            {"postgres": {"trial": {"enabled": True}}},
            "postgres.trial.enabled is true and database.owner is set",
        ),
        ({"workers": {"mail": {}}}, "workers.mail.handlers is not set"),
        (
            pool(drainTimeoutSeconds=60, terminationGracePeriodSeconds=69),
            "workers.mail.terminationGracePeriodSeconds is 69;",
        ),
        (
            pool(autoscaling={"type": "hpa", "minReplicas": 3, "maxReplicas": 2}),
            "workers.mail.autoscaling.minReplicas is 3,",
        ),
        (
            {"workerDefaults": {"autoscaling": {"minReplicas": 0}}}
            | pool(autoscaling={"type": "hpa"}),
            "workers.mail.autoscaling.minReplicas is 0; only",
        ),
        (keda("prometheus"), "workers.mail.autoscaling.keda.prometheus.serverAddress is not set"),
        (
            keda("postgresql", postgresql={"host": "h", "database": "d", "user": "u"}),
            "workers.mail.autoscaling.keda.postgresql.passwordSecret is not set",
        ),
        (
            {"database": LOGINS | {"tls": {"mode": "verify-full"}}},
            "database.tls.mode is verify-full; it needs",
        ),
        (
            {
                "database": LOGINS
                | {"tls": {"caSecret": {"name": "a"}, "caConfigMap": {"name": "b"}}}
            },
            "database.tls.caConfigMap.name",
        ),
        (
            {"database": LOGINS | {"connectionBudget": 10}} | pool(replicas=5),
            "database.connectionBudget is 10; the pools",
        ),
        (
            {"redrive": {"automatic": {"enabled": True}}},
            "redrive.automatic.filter: name at least one",
        ),
        (
            {
                "monitoring": {
                    "prometheusRule": {"enabled": True, "disabledAlerts": ["NoSuchAlert"]}
                }
            },
            "monitoring.prometheusRule.disabledAlerts: there is no alert NoSuchAlert",
        ),
        # what the schema says of one value
        (
            {"database": LOGINS | {"owner": {"existingSecret": "a", "url": "host=h"}}},
            "/database/owner/existingSecret",
        ),
        ({"database": LOGINS | {"owner": {"url": "mysql://h/d"}}}, "/database/owner/url"),
        ({"database": LOGINS | {"tls": {"mode": "sometimes"}}}, "/database/tls/mode"),
        (pool(slots=0), "/workers/mail/slots"),
        (pool(runners=65), "/workers/mail/runners"),
        (pool(queues=["Mail"]), "/workers/mail/queues/0"),
        (pool(handlers="app.jobs"), "/workers/mail/handlers"),
        (pool(drainTimeoutSeconds=-1), "/workers/mail/drainTimeoutSeconds"),
        (pool(heartbeatTtlSeconds=0), "/workers/mail/heartbeatTtlSeconds"),
        (pool(autoscaling={"type": "magic"}), "/workers/mail/autoscaling/type"),
        (
            pool(autoscaling={"type": "hpa", "minReplicas": 0}),
            "/workers/mail/autoscaling/minReplicas",
        ),
        (pool(resources={"limits": {"memory": "much"}}), "/workers/mail/resources/limits/memory"),
        (pool(env=[{"value": "x"}]), "/workers/mail/env/0"),
        ({"workers": {"Mail": {"handlers": "a:b"}}}, "Mail"),
        ({"migrations": {"mode": "initContainer"}}, "/migrations/mode"),
        ({"queues": {"Mail": {}}}, "Mail"),
        ({"queues": {"mail": {"objectives": {"dlq_added": 1}}}}, "dlq_added"),
        (
            {"queues": {"mail": {"objectives": {"dlq_added_5m": -1}}}},
            "/queues/mail/objectives/dlq_added_5m",
        ),
        (
            {"queues": {"mail": {"objectives": {"dead_ratio": 14}}}},
            "/queues/mail/objectives/dead_ratio",
        ),
        (
            {"queues": {"mail": {"objectives": {"page_on_first_dead_letter": True}}}},
            "/queues/mail/objectives/page_on",
        ),
        ({"purge": {"olderThan": "a month"}}, "/purge/olderThan"),
        ({"purge": {"schedule": "daily"}}, "/purge/schedule"),
        ({"purge": {"states": ["dead"]}}, "/purge/states/0"),
        ({"redrive": {"automatic": {"rate": 0}}}, "/redrive/automatic/rate"),
        ({"image": {"digest": "latest"}}, "/image/digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"log": {"level": "loud"}}, "/log/level"),
        ({"pods": {"runAsUser": 0}}, "/pods/runAsUser"),
        ({"networkPolicy": {"databasePort": 70000}}, "/networkPolicy/databasePort"),
        ({"postgres": {"trial": {"password": "it's"}}}, "/postgres/trial/password"),
        ({"fullnameOverride": "a" * 36}, "/fullnameOverride"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_value_is_named(render: Render, values: dict[str, Any], says: str) -> None:
    with pytest.raises(HelmRefusedError) as refused:
        render({"database": LOGINS} | values)

    assert says in str(refused.value)


def test_a_name_too_long_for_a_cron_job_is_named(render: Render) -> None:
    with pytest.raises(HelmRefusedError, match="fullnameOverride: the name"):
        render({"database": LOGINS}, name="a" * 36)
