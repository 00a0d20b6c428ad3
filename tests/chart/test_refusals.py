"""Values that cannot work are refused before anything is installed, by a message that names the
field.
"""

import json
from typing import Any

import pytest

from redrive.extras.targets.file import KIND
from tests.chart.conftest import Render
from tests.chart.helm import CHART, HelmRefusedError
from tests.chart.rendered import LOGINS, pool


def monitored(**properties: Any) -> dict[str, Any]:
    enabled = {name: {"enabled": True} for name in ("podMonitor", "prometheusRule")}
    return {
        "monitoring": {
            name: of | properties.get(name, {}) for name, of in enabled.items()
        }
    }


def console(**properties: Any) -> dict[str, Any]:
    """One that people could enter, but for what is given."""
    given = {
        "enabled": True,
        "tokens": {"existingSecret": "tokens"},
        "logins": {"operator": {"existingSecret": "operator"}},
    }
    return {"database": LOGINS, "console": given | properties}


OPEN_ID = {"issuer": "https://id.example", "clientId": "redrive"}


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
        (
            keda("prometheus"),
            "workers.mail.autoscaling.keda.prometheus.serverAddress is not set",
        ),
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
            pool(rollingUpdate={"maxSurge": "0%"}),
            "workers.mail.rollingUpdate.maxSurge and maxUnavailable are both 0;",
        ),
        (
            {"console": {"enabled": True}},
            "console.enabled is true and nobody could sign in",
        ),
        (
            console(tokens={}),
            "set console.tokens.existingSecret, or console.groups with",
        ),
        (
            console(logins={}),
            "console.logins: set existingSecret (or url) of viewer, operator or",
        ),
        (console(proxy={"addresses": ["10.0.0.1"]}), "console.groups is empty"),
        (
            console(groups={"leads": "approver"}),
            "console.groups: leads is approver, and",
        ),
        (
            console(oidc=OPEN_ID, groups={"oncall": "operator"}),
            "console.url: the OIDC provider sends people back there",
        ),
        (
            console(oidc=OPEN_ID | {"clientId": ""}, groups={"oncall": "operator"}),
            "console.oidc.clientId is not set",
        ),
        (
            console(replicas=2),
            "console.replicas is 2 and console.sessionKey.existingSecret is not",
        ),
        (
            console(ingress={"enabled": True}),
            "console.ingress.enabled is true and console.url is",
        ),
        (
            console(httpRoute={"enabled": True}, url="https://a.example"),
            "console.httpRoute.parentRefs is empty",
        ),
        (
            console() | {"cells": {"existingSecret": "cells"}},
            "console.logins.operator and cells.existingSecret are both set",
        ),
        (
            pool() | {"database": LOGINS, "cells": {"existingSecret": "cells"}},
            "cells.name is not set; the workers of this release are of one of the cells",
        ),
        (console(url="https://a.example/redrive"), "at '/console/url'"),
        (console(groups={"oncall": "boss"}), "at '/console/groups/oncall'"),
        (
            {"redrive": {"automatic": {"enabled": True}}},
            "redrive.automatic.filter: name at least one",
        ),
        (
            {
                "monitoring": {
                    "prometheusRule": {
                        "enabled": True,
                        "disabledAlerts": ["NoSuchAlert"],
                    }
                }
            },
            "monitoring.prometheusRule.disabledAlerts: there is no alert NoSuchAlert",
        ),
        # combinations that page wrongly
        (
            {"monitoring": {"prometheusRule": {"enabled": True}}},
            "monitoring.prometheusRule.enabled is true and nothing is scraped",
        ),
        (
            monitored(podMonitor={"interval": "2m"}),
            "monitoring.podMonitor.interval is 2m; the rules",
        ),
        (
            monitored(podMonitor={"scrapeTimeout": "1m"}),
            "monitoring.podMonitor.scrapeTimeout is 1m, longer than the interval, 30s",
        ),
        (
            monitored(podMonitor={"relabelings": [{"targetLabel": "namespace"}]}),
            "monitoring.podMonitor.relabelings: the rules",
        ),
        (
            monitored(
                prometheusRule={"disabledAlerts": ["RedriveDeadLetterOnCriticalQueue"]}
            )
            | {"queues": {"pay": {"objectives": {"page_on_first_dead_letter": 1}}}},
            "queues.pay.objectives.page_on_first_dead_letter is 1 and monitoring",
        ),
        # one name twice: the other would be dropped in silence
        (
            pool(env=[{"name": "REDRIVE_SLOTS", "value": "1"}]),
            "workers.mail.env: REDRIVE_SLOTS is",
        ),
        (
            pool(env=[{"name": "A", "value": "1"}])
            | {"pods": {"env": [{"name": "A"}]}},
            "workers.mail.env: A is there twice",
        ),
        (
            {"pods": {"env": [{"name": "REDRIVE_LOG_LEVEL", "value": "debug"}]}},
            "pods.env: REDRIVE_LOG_LEVEL is",
        ),
        (
            pool(volumes=[{"name": "tmp", "emptyDir": {}}]),
            "workers.mail.volumes: tmp is",
        ),
        (
            pool(volumeMounts=[{"name": "x", "mountPath": "/tmp"}]),
            "workers.mail.volumeMounts: /tmp is",
        ),
        (
            pool(
                extraContainers=[{"name": "a", "image": "a"}],
                initContainers=[{"name": "a", "image": "a"}],
            ),
            "workers.mail.extraContainers: a is there twice",
        ),
        (
            pool(
                extraContainers=[
                    {"name": "a", "image": "a", "env": [{"name": "B"}] * 2}
                ]
            ),
            "workers.mail.extraContainers.a.env: B is there twice",
        ),
        # what YAML cannot hold: with one of these, a whole environment was rendered as nothing
        (pool(env=[{"name": "A", "value": "x\x83y"}]), "/workers/mail/env/0/value"),
        (pool(podAnnotations={"a": "x\x7fy"}), "/workers/mail/podAnnotations/a"),
        # what the schema says of one value
        ({"cronJobs": {"timeZone": "Local"}}, "/cronJobs/timeZone"),
        ({"purge": {"schedule": "a b c d e"}}, "purge.schedule: a is no minute"),
        ({"pods": {"priorityClassName": "a..b"}}, "/pods/priorityClassName"),
        ({"pods": {"tolerations": [{"effects": "NoSchedule"}]}}, "/pods/tolerations/0"),
        ({"pods": {"annotations": {"helm.sh/hook": "test"}}}, "helm.sh/hook"),
        ({"commonLabels": {"team": "a b"}}, "/commonLabels/team"),
        (
            {"networkPolicy": {"metricsFrom": [{"ipBlock": {"cidr": "any"}}]}},
            "/networkPolicy/metr",
        ),
        (
            {"monitoring": {"prometheusRule": {"runbookUrl": "https://it's.example"}}},
            "/monitoring/prometheusRule/runbookUrl",
        ),
        (
            {"database": LOGINS | {"owner": {"existingSecret": "a", "url": "host=h"}}},
            "/database/owner/existingSecret",
        ),
        (
            {"database": LOGINS | {"owner": {"url": "mysql://h/d"}}},
            "/database/owner/url",
        ),
        ({"database": LOGINS | {"tls": {"mode": "sometimes"}}}, "/database/tls/mode"),
        (pool(slots=0), "/workers/mail/slots"),
        (pool(runners=65), "/workers/mail/runners"),
        (pool(queues=["1mail"]), "/workers/mail/queues/0"),
        (pool(handlers="app.jobs"), "/workers/mail/handlers"),
        (
            pool(targets={"targets": {"1mail": {"url": "https://mail.example"}}}),
            "properties '1mail' not allowed",
        ),
        (pool(drainTimeoutSeconds=-1), "/workers/mail/drainTimeoutSeconds"),
        (pool(heartbeatTtlSeconds=0), "/workers/mail/heartbeatTtlSeconds"),
        (pool(autoscaling={"type": "magic"}), "/workers/mail/autoscaling/type"),
        (
            pool(autoscaling={"type": "hpa", "minReplicas": 0}),
            "/workers/mail/autoscaling/minReplicas",
        ),
        (
            pool(resources={"limits": {"memory": "much"}}),
            "workers.mail.resources.limits.memory is",
        ),
        (pool(env=[{"value": "x"}]), "/workers/mail/env/0"),
        ({"workers": {"Mail": {"handlers": "a:b"}}}, "Mail"),
        ({"migrations": {"mode": "initContainer"}}, "/migrations/mode"),
        ({"queues": {"1mail": {}}}, "1mail"),
        ({"queues": {"mail": {"owner": "two words"}}}, "/queues/mail/owner"),
        ({"queues": {"mail": {"contact": "#mail"}}}, "queues/mail"),
        ({"queues": {"mail/a": {"objectives": {"dead_ratio": 0.1}}}}, "dead_ratio"),
        (
            {"queues": {"*/a": {"objectives": {"dlq_added_5m": 1}}}},
            "/queues/*~1a/objectives",
        ),
        ({"queues": {"mail/*": {"owner": "mail"}}}, "'mail/*' not allowed"),
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
            {"queues": {"mail/a": {"objectives": {"failed_ratio": 50}}}},
            "/queues/mail~1a/objectives/failed_ratio",
        ),
        (
            {"queues": {"mail": {"objectives": {"page_on_first_dead_letter": True}}}},
            "/queues/mail/objectives/page_on",
        ),
        ({"report": {"since": "a week"}}, "report.since is"),
        ({"report": {"enabled": True}}, "it goes nowhere"),
        ({"purge": {"olderThan": "a month"}}, "purge.olderThan is"),
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
def test_a_wrong_value_is_named(
    render: Render, values: dict[str, Any], says: str
) -> None:
    with pytest.raises(HelmRefusedError) as refused:
        render({"database": LOGINS} | values)

    assert says in str(refused.value)


def test_a_name_too_long_for_a_cron_job_is_named(render: Render) -> None:
    with pytest.raises(HelmRefusedError, match="fullnameOverride: the name"):
        render({"database": LOGINS}, name="a" * 36)


def test_rules_without_a_monitor_of_the_workers_are_refused(render: Render) -> None:
    """With the exporter scraped alone, every busy queue paged as unserved."""
    monitors = {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
    }

    with pytest.raises(
        HelmRefusedError, match="serviceMonitor scrapes the exporter al"
    ):
        render({"database": LOGINS, "monitoring": monitors} | pool())

    assert render({"database": LOGINS, "monitoring": monitors}).names("PrometheusRule")
    elsewhere = {"monitoring": monitors | {"scrapedOtherwise": True}}
    assert render({"database": LOGINS} | elsewhere | pool()).names("PrometheusRule")


@pytest.mark.parametrize("name", ["1st", "a.b"])
def test_a_name_that_no_service_can_have_is_refused(render: Render, name: str) -> None:
    """A release of Helm may be called so."""
    with pytest.raises(HelmRefusedError, match="fullnameOverride: the name"):
        render({"database": LOGINS}, name=name)


def test_the_chart_and_the_file_of_targets_take_the_same_kinds() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    targets = schema["definitions"]["pool"]["properties"]["targets"]["properties"]

    assert list(targets["targets"]["patternProperties"]) == [f"^({KIND.pattern})$"]
