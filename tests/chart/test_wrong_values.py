"""A table of a hundred values that cannot work, with the whole message of each.

All are refused when the chart is rendered: nothing has run, and no migration either.
"""

import json
import re
from typing import Any
from zoneinfo import available_timezones

import pytest

from redrive.rules.model import Category, Reason
from tests.chart.conftest import Render
from tests.chart.helm import CHART, HelmRefusedError
from tests.chart.rendered import GATEWAY, LOGINS, SOURCES, pool

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
MORE = {"requests": {"memory": "1Gi"}, "limits": {"memory": "512Mi"}}
SYSTEM = {"mode": "verify-full", "systemCa": True}
LONGEST_PATTERN = 140
"""In characters: a pattern is printed with a refusal, in a terminal of 80 columns."""


def automatic(**properties: Any) -> dict[str, Any]:
    return {"redrive": {"automatic": properties}}


def env(name: str) -> list[dict[str, str]]:
    return [{"name": name, "value": "1"}]


def orders(url_file: str) -> dict[str, Any]:
    of_orders = {"url_file": url_file, "queue": "orders.dead"}
    sources = SOURCES | {"rabbitmq": {"orders": of_orders}}
    return {"gateway": GATEWAY | {"sources": sources}}


WRONG: list[tuple[dict[str, Any], str]] = [
    # a worker that would be lost while it is well
    (
        pool(heartbeatTtlSeconds=1),
        "at '/workers/mail/heartbeatTtlSeconds': minimum: got 1, want 5",
    ),
    (
        {"workerDefaults": {"heartbeatTtlSeconds": 4}},
        "at '/workerDefaults/heartbeatTtlSeconds': minimum: got 4, want 5",
    ),
    # pods that the API server refuses
    *(
        (
            values,
            (
                f"{field}.requests.memory is 1Gi, more than limits.memory, 512Mi; "
                "Kubernetes refuses such a pod"
            ),
        )
        for field, values in {
            "workers.mail.resources": pool(resources=MORE),
            "exporter.resources": {"exporter": {"resources": MORE}},
            "exporter.tools.resources": {"exporter": {"tools": {"resources": MORE}}},
            "console.resources": {"console": {"resources": MORE}},
            "gateway.resources": {"gateway": {"resources": MORE}},
            "migrations.resources": {"migrations": {"resources": MORE}},
            "redrive.resources": {"redrive": {"resources": MORE}},
            "purge.resources": {"purge": {"resources": MORE}},
            "report.resources": {"report": {"resources": MORE}},
            "test.resources": {"test": {"resources": MORE}},
            "postgres.trial.resources": {"postgres": {"trial": {"resources": MORE}}},
            "workers.mail.extraContainers.proxy.resources": pool(
                extraContainers=[{"name": "proxy", "image": "a", "resources": MORE}]
            ),
            "workers.mail.initContainers.first.resources": pool(
                initContainers=[{"name": "first", "image": "a", "resources": MORE}]
            ),
        }.items()
    ),
    (
        pool(resources={"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}),
        "workers.mail.resources.requests.cpu is 2, more than limits.cpu, 1500m; ",
    ),
    (
        pool(resources={"requests": {"memory": "600M"}}),
        "workers.mail.resources.requests.memory is 600M, more than limits.memory, 512Mi; ",
    ),
    (
        pool(resources={"requests": {"mem": "1Gi"}}),
        "workers.mail.resources.requests.mem: Kubernetes has no resource mem; use cpu, ",
    ),
    *(
        (
            pool(resources={"requests": {}, "limits": {"memory": memory}}),
            f"workers.mail.resources.limits.memory is {memory}, less than 1Mi; in Mi, it",
        )
        for memory in ("512m", 512)
    ),
    *(
        (
            pool(resources={"requests": {"nvidia.com/gpu": 1}} | limits),
            "workers.mail.resources.requests.nvidia.com/gpu needs the same number in lim",
        )
        for limits in ({}, {"limits": {"nvidia.com/gpu": 2}})
    ),
    (
        pool(tolerations=[{"key": "gpu", "operator": "Exists", "value": "a"}]),
        "workers.mail.tolerations: gpu has operator Exists and a value; leave out one of",
    ),
    (
        {"pods": {"tolerations": [{"key": "spot", "tolerationSeconds": 9}]}},
        "pods.tolerations: tolerationSeconds of spot needs effect NoExecute; Kubernetes ",
    ),
    (
        {"pods": {"dnsPolicy": "None"}},
        "pods.dnsPolicy is None; it needs pods.dnsConfig.nameservers",
    ),
    (
        {"networkPolicy": {"databaseTo": [{"ipBlock": {"cidr": "10.0.0.0/99"}}]}},
        "at '/networkPolicy/databaseTo/0/ipBlock/cidr': '10.0.0.0/99' does not match",
    ),
    # an image that no node could pull
    (
        pool(image="https://registry.example/shop:1"),
        "workers.mail.image: https://registry.example/shop:1 begins with a scheme; leave",
    ),
    # schedules
    *(
        (
            {"purge": {"schedule": schedule}},
            f'purge.schedule: {part} is no {what}, in "{schedule}"',
        )
        for schedule, part, what in (
            ("61 3 * * *", "61", "minute, 0 to 59"),
            ("*/0 3 * * *", "*/0", "minute, 0 to 59"),
            ("5,60 3 * * *", "60", "minute, 0 to 59"),
            ("30-10 3 * * *", "30-10", "minute, 0 to 59"),
            ("0 24 * * *", "24", "hour, 0 to 23"),
            ("0 0 0 * *", "0", "day of the month, 1 to 31"),
            ("0 0 32 * *", "32", "day of the month, 1 to 31"),
            ("0 0 1 13 *", "13", "month, 1 to 12 or JAN to DEC"),
            ("0 0 1 Foo *", "Foo", "month, 1 to 12 or JAN to DEC"),
            ("0 0 * * 7", "7", "day of the week, 0 to 6 or SUN to SAT"),
            ("0 0 * * Mo", "Mo", "day of the week, 0 to 6 or SUN to SAT"),
        )
    ),
    (automatic(schedule="61 * * * *"), "redrive.automatic.schedule: 61 is no minute"),
    ({"report": {"schedule": "0 25 * * 1"}}, "report.schedule: 25 is no hour, 0 to 23"),
    *(
        (
            {"cronJobs": {"timeZone": zone}},
            f"cronJobs.timeZone: {zone} is no time zone; one is Europe/Berlin",
        )
        for zone in ("Europe/Berln", "CEST", "Mars/Olympus")
    ),
    (
        pool(
            targets={
                "allowed_hosts": ["mail.example"],
                "targets": {"mail": {"url": "https://mail.example"}},
                "schedules": [{"kind": "mail", "cron": "0 7 * * *", "tz": "Berlin"}],
            }
        ),
        "workers.mail.targets.schedules: Berlin is no time zone; one is Europe/Berlin",
    ),
    *(
        (
            pool(
                targets={"allowed_hosts": ["a.example"], "targets": {"a": {"url": url}}}
            ),
            f"workers.mail.targets.targets.a.url {why}",
        )
        for url, why in (
            (
                "https://b.example/x",
                "goes to b.example, which is not among targets.allow",
            ),
            ("ftp://a.example", "must start with http:// or https:// and name a host"),
        )
    ),
    (
        pool(
            handlers="",
            targets={
                "allowed_hosts": ["a.example"],
                "targets": {"a": {"url": "https://A.example:8443/x"}},
                "schedules": [{"kind": "b", "cron": "0 7 * * *"}],
            },
        ),
        "workers.mail.targets.schedules: there is no target b, which a schedule names",
    ),
    # filters that match nothing
    (
        automatic(filter={"category": ["transiant"]}),
        "at '/redrive/automatic/filter/category/0': value must be one of 'transient', ",
    ),
    (
        automatic(filter={"reason": ["attempts"]}),
        "at '/redrive/automatic/filter/reason/0': value must be one of 'attempts_exh",
    ),
    # settings that are none: the process would end with exit code 64
    (
        pool(env=env("REDRIVE_HEARTBEAT_TLL")),
        (
            "workers.mail.env: REDRIVE_HEARTBEAT_TLL is no setting of Redrive; "
            "the nearest is REDRIVE_HEARTBEAT_TTL"
        ),
    ),
    (
        {"workerDefaults": {"env": env("REDRIVE_SOURCE_LINE")}} | pool(),
        (
            "workers.mail.env: REDRIVE_SOURCE_LINE is no setting of Redrive; "
            "the nearest is REDRIVE_SOURCE_LINES"
        ),
    ),
    (
        {"pods": {"env": env("REDRIVE_ENVIROMENT")}},
        (
            "pods.env: REDRIVE_ENVIROMENT is no setting of Redrive; "
            "the nearest is REDRIVE_ENVIRONMENT"
        ),
    ),
    (
        {"gateway": {"env": env("redrive_runner_envs")}},
        (
            "gateway.env: redrive_runner_envs is no setting of Redrive; "
            "the nearest is REDRIVE_RUNNER_ENV"
        ),
    ),
    # nodes that could not be drained
    *(
        (
            pool(podDisruptionBudget={"maxUnavailable": none}, replicas=replicas),
            (
                "workers.mail.podDisruptionBudget.maxUnavailable is 0; no node with one of "
                "its pods could be drained"
            ),
        )
        for none in (0, "0%")
        for replicas in (1, 3)
    ),
    # files that are not there
    (
        orders("/etc/redrive/brokers/elsewhere/url"),
        (
            "gateway.sources.rabbitmq.orders.url_file is /etc/redrive/brokers/elsewhere/url,"
            " in no Secret of gateway.secrets"
        ),
    ),
    (
        orders("/secrets/rabbit"),
        "gateway.sources.rabbitmq.orders.url_file is /secrets/rabbit, in no Secret of",
    ),
    # TLS
    (
        {"database": LOGINS | {"tls": {"mode": "verify-ca", "systemCa": True}}},
        "database.tls.systemCa needs database.tls.mode verify-full; anybody can have",
    ),
    (
        {"database": LOGINS | {"tls": SYSTEM | {"caSecret": {"name": "authority"}}}},
        "database.tls.systemCa is true and a certificate of your own is named; unset",
    ),
    (
        pool(volumeMounts=[{"name": "gone", "mountPath": "/x"}]),
        "workers.mail.volumeMounts: there is no volume gone; add it to volumes",
    ),
    (
        pool(extraContainers=[{"name": "worker", "image": "a"}]),
        "workers.mail.extraContainers: worker is the chart's own container; take",
    ),
    (
        pool(extraContainers=2 * [{"name": "a", "image": "a"}]),
        "workers.mail.extraContainers: a is there twice, or the chart sets it itself",
    ),
    (
        pool(volumes=[{"name": "tmp", "emptyDir": {}}]),
        "workers.mail.volumes: tmp is there twice, or the chart sets it itself; leave",
    ),
    (pool(env=env("A") + env("A")), "workers.mail.env: A is there twice, or the chart"),
    (pool(env=env("REDRIVE_SLOTS")), "workers.mail.env: REDRIVE_SLOTS is there twice"),
    # numbers and words outside of their range
    (pool(slots=0), "at '/workers/mail/slots': minimum: got 0, want 1"),
    (pool(runners=65), "at '/workers/mail/runners': maximum: got 65, want 64"),
    (pool(replicas="2"), "at '/workers/mail/replicas': got string, want integer"),
    (pool(queues="mail"), "at '/workers/mail/queues': got string, want array"),
    (pool(queues=["a", "a"]), "at '/workers/mail/queues': items at 0 and 1 are equal"),
    (
        pool(rollingUpdate={"maxSurge": 0, "maxUnavailable": 0}),
        "workers.mail.rollingUpdate.maxSurge and maxUnavailable are both 0; raise one",
    ),
    (
        pool(terminationGracePeriodSeconds=20),
        "workers.mail.terminationGracePeriodSeconds is 20; it must be at least drain",
    ),
    (
        pool(autoscaling={"type": "hpa", "minReplicas": 5, "maxReplicas": 2}),
        "workers.mail.autoscaling.minReplicas is 5, more than maxReplicas, 2",
    ),
    (
        pool(autoscaling={"type": "keda"}),
        "workers.mail.autoscaling.keda.prometheus.serverAddress is not set; KEDA asks",
    ),
    (
        {"database": LOGINS | {"connectionBudget": 5}} | pool(replicas=50),
        "database.connectionBudget is 5; the pools at their largest open 206 connections",
    ),
    (
        {"image": {"pullPolicy": "always"}},
        "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
    ),
    (
        {"global": {"imageRegistry": "https://mirror.example"}},
        "at '/global/imageRegistry': 'https://mirror.example' does not match pattern",
    ),
    (
        {"purge": {"every": "0m"}},
        'purge.every is "0m"; it must be auto, empty, or a number and a unit, such',
    ),
    *(
        (values, f'{field}.resources.limits.memory is "1GB"; it must be a quantity of')
        for field, values in {
            "workers.mail": pool(resources={"limits": {"memory": "1GB"}}),
            "exporter": {"exporter": {"resources": {"limits": {"memory": "1GB"}}}},
        }.items()
    ),
    (
        {"purge": {"olderThan": "30 days"}},
        'purge.olderThan is "30 days"; it must be a number and a unit, such as 30m,',
    ),
    (
        {"report": {"since": "week"}},
        'report.since is "week"; it must be a number and a unit',
    ),
    (
        {"retention": {"audit": "400"}},
        'retention.audit is "400"; it must be a number and a unit',
    ),
    (
        automatic(filter={"since": "yesterday"}),
        'redrive.automatic.filter.since is "yesterday"; it must be an age such as',
    ),
    (
        {"image": {"repository": "ghcr.io/shop/redrive:1.2"}},
        "image.repository: ghcr.io/shop/redrive:1.2 ends with a tag; set the tag in",
    ),
    (
        {"database": LOGINS | {"diskBudgetGiB": "50Gi"}},
        "at '/database/diskBudgetGiB': got string, want integer",
    ),
    (
        {"purge": {"states": ["gone"]}},
        "at '/purge/states/0': value must be one of 'open', 'redriven', 'resolved', ",
    ),
    (
        {"queues": {"mail": {"objectives": {"dead_ratio": 5}}}},
        "at '/queues/mail/objectives/dead_ratio': maximum: got 5, want 1",
    ),
    (
        {"networkPolicy": {"databasePort": 70000}},
        "at '/networkPolicy/databasePort': maximum: got 70,000, want 65,535",
    ),
    ({"pods": {"runAsUser": 0}}, "at '/pods/runAsUser': minimum: got 0, want 1"),
    (pool(drainTimeoutSeconds=-1), "drainTimeoutSeconds': minimum: got -1, want 0"),
    (pool(nodeSelector={"a": 1}), "at '/workers/mail/nodeSelector/a': got number"),
    (pool(lotsOfThings=1), "at '/workers/mail': additional properties 'lotsOfThings'"),
    (
        pool(autoscaling={"type": "vpa"}),
        "at '/workers/mail/autoscaling/type': value must be one of 'none', 'hpa', 'keda'",
    ),
    (
        {"queues": {"mail": {"contact": "#a"}}},
        "at '/queues/mail': properties 'owner' required, if 'contact' exists",
    ),
    ({"exporter": {"replicas": 0}}, "at '/exporter': additional properties 'replicas'"),
    ({"worker": {}}, "at '': additional properties 'worker' not allowed"),
    ({"imagePullSecrets": ["a"]}, "at '/imagePullSecrets/0': got string, want object"),
    # parts that could not do anything
    (
        {"console": {"groups": {"a": "boss"}}},
        "at '/console/groups/a': value must be one of 'viewer', 'operator', 'approver'",
    ),
    (
        {
            "monitoring": {
                "podMonitor": {
                    "enabled": True,
                    "interval": "10s",
                    "scrapeTimeout": "20s",
                }
            }
        },
        "monitoring.podMonitor.scrapeTimeout is 20s, longer than the interval, 10s; ",
    ),
    (
        {"migrations": {"activeDeadlineSeconds": 1}},
        "at '/migrations/activeDeadlineSeconds': minimum: got 1, want 10",
    ),
    (
        {"migrations": {"mode": "manual"}},
        "at '/migrations/mode': value must be one of 'hook', 'job', 'none'",
    ),
    (
        automatic(enabled=True),
        "redrive.automatic.filter: name at least one kind, queue, reason, category, ",
    ),
    ({"report": {"enabled": True}}, "report.enabled is true and it goes nowhere; set"),
    (
        {"console": {"enabled": True}},
        "console.enabled is true and nobody could sign in; set console.tokens.existing",
    ),
    (
        {"gateway": {"enabled": True}},
        "gateway.login: set existingSecret (or url); its login is a member of",
    ),
    (
        {"monitoring": {"prometheusRule": {"enabled": True}}},
        "monitoring.prometheusRule.enabled is true and nothing is scraped, so no alert",
    ),
    # names, where a message once spoke of propertyNames
    ({"workers": {"Mail": {}}}, "at '/workers': additional properties 'Mail' not"),
    ({"queues": {"1mail": {}}}, "at '/queues': additional properties '1mail' not"),
    (
        {"retention": {"audits": "1d"}},
        "at '/retention': additional properties 'audits' not allowed",
    ),
    (
        {"pods": {"dnsConfig": {"option": []}}},
        "at '/pods/dnsConfig': additional properties 'option' not allowed",
    ),
    (
        {"pods": {"affinity": {"node": {}}}},
        "at '/pods/affinity': additional properties 'node' not allowed",
    ),
    (
        {"pods": {"nodeSelector": {"a b": "c"}}},
        "at '/pods/nodeSelector': additional properties 'a b' not allowed",
    ),
    (
        {"console": {"groups": {"a,b": "viewer"}}},
        "at '/console/groups': additional properties 'a,b' not allowed",
    ),
    *(
        (values, f"{field}: the chart sets app.kubernetes.io/name itself; leave it out")
        for field, values in {
            "commonLabels": {"commonLabels": {"app.kubernetes.io/name": "a"}},
            "pods.labels": {"pods": {"labels": {"app.kubernetes.io/name": "a"}}},
            "workers.mail.podLabels": pool(podLabels={"app.kubernetes.io/name": "a"}),
        }.items()
    ),
    (
        {"pods": {"annotations": {"helm.sh/hook": "test"}}},
        "pods.annotations: helm.sh/hook would make a hook of it; leave it out",
    ),
    (
        pool(podAnnotations={"helm.sh/hook-weight": "1"}),
        "workers.mail.podAnnotations: helm.sh/hook-weight would make a hook of it; ",
    ),
]


@pytest.mark.parametrize(("values", "says"), WRONG, ids=[says for _, says in WRONG])
def test_a_value_that_cannot_work_is_refused_in_a_sentence(
    render: Render, values: dict[str, Any], says: str
) -> None:
    with pytest.raises(HelmRefusedError) as refused:
        render({"database": LOGINS} | values)

    assert says in str(refused.value)
    assert "propertyName" not in str(refused.value)


@pytest.mark.parametrize(
    "values",
    [
        pool(heartbeatTtlSeconds=5),
        pool(resources={"requests": {"cpu": "1500m"}, "limits": {"cpu": 1.5}}),
        pool(resources={"requests": {"memory": "512Mi"}, "limits": {"memory": "1e9"}}),
        {"purge": {"schedule": "0,30 */2 1-15/3 JAN,jul-12 mon-FRI"}},
        {"purge": {"schedule": "@daily"}},
        pool(env=env("REDRIVE_SOURCE_LINES")),
        {"pods": {"env": env("REDRIVE_ENVIRONMENT")}},
        {"queues": {"mail": {"owner": "a"}, "mail/a.b": {"owner": "b"}}},
        orders("/etc/redrive/brokers/other.broker/url"),
    ],
)
def test_what_can_work_is_installed(render: Render, values: dict[str, Any]) -> None:
    assert render({"database": LOGINS} | values)


def test_every_time_zone_is_one(render: Render) -> None:
    zones = sorted(available_timezones() - {"localtime"})
    schedules = [{"kind": "mail", "cron": "0 7 * * *", "tz": zone} for zone in zones]
    targets = {"mail": {"url": "https://mail.example"}}

    assert render(
        {"database": LOGINS}
        | pool(
            targets={
                "allowed_hosts": ["mail.example"],
                "targets": targets,
                "schedules": schedules,
            }
        )
    )


def test_the_chart_knows_each_category_and_reason() -> None:
    of_filter = SCHEMA["properties"]["redrive"]["properties"]["automatic"]
    of_filter = of_filter["properties"]["filter"]["properties"]

    assert of_filter["category"]["items"]["enum"] == list(Category)
    assert of_filter["reason"]["items"]["enum"] == list(Reason)


def test_no_refusal_prints_a_pattern_that_nobody_reads() -> None:
    text = json.dumps(SCHEMA)
    patterns = re.findall(r'"pattern": "((?:[^"\\]|\\.)*)"', text)

    assert "propertyNames" not in text
    assert [found for found in patterns if len(found) > LONGEST_PATTERN] == []
