"""What comes out of which values."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from redrive.cli.support.exits import Exit
from redrive.handlers import Handlers
from redrive.handlers.targets.caller import register
from redrive.handlers.targets.file import load
from redrive.settings import Settings
from redrive.settings import load as load_settings
from tests.chart.conftest import EVERYTHING, EXAMPLES, Render, read_values
from tests.chart.helm import CHART, ROOT, HelmRefusedError, Release
from tests.commands import commands

KEDA = {
    "type": "keda",
    "keda": {"prometheus": {"serverAddress": "http://p:9090", "maxWaitSeconds": 5}},
}
LOGINS = {login: {"existingSecret": login} for login in ("owner", "worker", "operator")}


def with_pool(**pool: Any) -> dict[str, Any]:
    return {
        "database": LOGINS,
        "workers": {"mail": {"handlers": "app.jobs:jobs"} | pool},
    }


def container(release: Release, kind: str, name: str) -> dict[str, Any]:
    spec = release.get(kind, name)["spec"]
    while "template" in spec or "jobTemplate" in spec:
        spec = spec.get("jobTemplate", spec.get("template"))["spec"]
    return spec["containers"][0]


def environment(release: Release, kind: str, name: str) -> dict[str, str | None]:
    return {e["name"]: e.get("value") for e in container(release, kind, name)["env"]}


def settings(
    release: Release, kind: str, name: str, prefix: str
) -> dict[str, str | None]:
    found = environment(release, kind, name)
    return {name: value for name, value in found.items() if name.startswith(prefix)}


def test_the_least_that_installs_has_an_exporter_and_timers_but_no_workers(
    render: Render,
) -> None:
    release = render({"database": LOGINS})

    assert release.names() == {
        "ServiceAccount/rel",
        "Deployment/rel-exporter",
        "Service/rel-exporter",
        "Job/rel-migrate",
        "CronJob/rel-purge",
        "CronJob/rel-redrive-template",
        "NetworkPolicy/rel",
        "NetworkPolicy/rel-metrics",
        "NetworkPolicy/rel-test",
        "ConfigMap/rel-test",
        "Pod/rel-test",
    }
    assert "No workers yet" in release.notes


@pytest.mark.parametrize("path", [*EXAMPLES, EVERYTHING], ids=lambda path: path.stem)
def test_the_same_values_give_the_same_bytes(render: Render, path: Any) -> None:
    values = read_values(path)

    assert render(values).text == render(values, again=True).text


def test_the_values_that_quickstart_writes_install(render: Render) -> None:
    release = render(
        read_values(ROOT / "service" / "redrive" / "quickstart" / "values.yaml")
    )

    worker = environment(release, "Deployment", "rel-worker-main")
    assert worker["REDRIVE_HANDLERS"] == "handlers:jobs"


def test_each_example_is_shown_in_the_documentation() -> None:
    text = (CHART.parents[1] / "docs" / "kubernetes.md").read_text()

    assert [path.name for path in EXAMPLES if f"examples/{path.name}" not in text] == []


def test_settings_reach_the_worker_under_their_names(render: Render) -> None:
    pool = with_pool(
        queues=["mail", "bulk"],
        slots=32,
        runners=2,
        drainTimeoutSeconds=90,
        heartbeatTtlSeconds=45,
    )
    release = render(pool)

    assert settings(release, "Deployment", "rel-worker-mail", "REDRIVE_") == {
        "REDRIVE_DATABASE_URL_FILE": "/etc/redrive/database/url",
        "REDRIVE_HANDLERS": "app.jobs:jobs",
        "REDRIVE_VERSION": "0.2.0",
        "REDRIVE_QUEUES": "mail,bulk",
        "REDRIVE_SLOTS": "32",
        "REDRIVE_RUNNERS": "2",
        "REDRIVE_HTTP_PORT": "9808",
        "REDRIVE_HEARTBEAT_TTL": "45",
        "REDRIVE_DRAIN_TIMEOUT": "90",
        "REDRIVE_LOG_FORMAT": "json",
        "REDRIVE_LOG_LEVEL": "info",
        "REDRIVE_DATABASE_METRICS": "false",
        "REDRIVE_STARTUP_TIMEOUT": "120",
    }


@pytest.mark.parametrize(
    ("image", "pool", "version"),
    [
        ({"tag": "1.4.2"}, {}, "1.4.2"),
        ({"tag": "1.4.2", "digest": f"sha256:{'a0' * 32}"}, {}, "a0a0a0a0a0a0"),
        ({}, {"image": f"host:5000/app:2@sha256:{'b1' * 32}"}, "b1b1b1b1b1b1"),
        ({}, {"image": "host:5000/app:yes"}, "yes"),
        ({}, {"image": "host:5000/app"}, None),
        ({"tag": "1.4.2"}, {"version": "1e3"}, "1e3"),
    ],
)
def test_workers_say_which_version_they_run(
    render: Render, image: dict[str, str], pool: dict[str, str], version: str | None
) -> None:
    """Without it a failure is of no version, and no deploy heals."""
    release = render(with_pool(**pool) | {"image": image})

    found = environment(release, "Deployment", "rel-worker-mail")
    assert found.get("REDRIVE_VERSION") == version


def test_all_queues_are_served_when_none_is_named(render: Render) -> None:
    assert "REDRIVE_QUEUES" not in environment(
        render(with_pool()), "Deployment", "rel-worker-mail"
    )


@pytest.mark.parametrize(
    ("pool", "grace"),
    [
        ({"drainTimeoutSeconds": 90}, 100),
        ({"drainTimeoutSeconds": 0}, 10),
        ({"drainTimeoutSeconds": 30, "terminationGracePeriodSeconds": 300}, 300),
    ],
)
def test_a_pod_is_killed_only_after_its_drain(
    render: Render, pool: dict[str, Any], grace: int
) -> None:
    pod = render(with_pool(**pool)).get("Deployment", "rel-worker-mail")["spec"][
        "template"
    ]["spec"]

    assert pod["terminationGracePeriodSeconds"] == grace


def test_a_pool_can_set_what_its_defaults_set_to_nothing_zero_and_false(
    render: Render,
) -> None:
    values = with_pool(replicas=0, queues=[], topologySpread=False) | {
        "workerDefaults": {
            "replicas": 5,
            "queues": ["mail"],
            "topologySpread": True,
            "slots": 7,
        }
    }
    release = render(values)

    deployment = release.get("Deployment", "rel-worker-mail")["spec"]
    assert deployment["replicas"] == 0
    assert "topologySpreadConstraints" not in deployment["template"]["spec"]
    found = environment(release, "Deployment", "rel-worker-mail")
    assert "REDRIVE_QUEUES" not in found
    assert found["REDRIVE_SLOTS"] == "7"


def test_a_rollout_needs_no_room_if_the_pool_says_so(render: Render) -> None:
    """O29: charts that people trust let the strategy, DNS and the runtime be set."""
    values = with_pool(rollingUpdate={"maxSurge": 0, "maxUnavailable": "50%"})
    pods = {
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "runtimeClassName": "gvisor",
    }
    release = render(values | {"pods": pods})

    spec = release.get("Deployment", "rel-worker-mail")["spec"]
    rollout = spec["strategy"]["rollingUpdate"]
    assert rollout == {"maxSurge": 0, "maxUnavailable": "50%"}
    for kind, name in (("Deployment", "rel-exporter"), ("Job", "rel-migrate")):
        pod = release.get(kind, name)["spec"]["template"]["spec"]
        assert pods.items() <= pod.items()


def test_handlers_from_a_configmap_are_mounted_and_importable(render: Render) -> None:
    release = render(with_pool(handlersConfigMap="my-handlers"))

    mounts = container(release, "Deployment", "rel-worker-mail")["volumeMounts"]
    assert {"name": "handlers", "mountPath": "/handlers", "readOnly": True} in mounts
    path = environment(release, "Deployment", "rel-worker-mail")["PYTHONPATH"]
    assert path.split(":")[0] == "/handlers"


def test_targets_and_their_schedules_are_a_file_of_the_pool(
    everything: Release, tmp_path: Path
) -> None:
    """It is one that a worker takes; a pool with targets needs no handlers."""
    name = "everything-worker-endpoints"
    file = tmp_path / "targets.yaml"
    file.write_text(
        everything.get("ConfigMap", f"{name}-targets")["data"]["targets.yaml"]
    )
    jobs = Handlers()
    register(jobs, load(file), 1)
    (declared,) = jobs.schedules.values()

    assert (declared.kind, declared.tz) == ("invoice.remind", "Europe/Berlin")
    assert declared.payload == '{"cents":10000000}'
    env = environment(everything, "Deployment", name)
    assert env["REDRIVE_TARGETS"] == "/targets/targets.yaml"
    mounts = container(everything, "Deployment", name)["volumeMounts"]
    assert {"name": "targets", "mountPath": "/targets", "readOnly": True} in mounts


def test_an_autoscaler_owns_the_number_of_pods(everything: Release) -> None:
    deployments = {
        o["metadata"]["name"]: o["spec"]
        for o in everything.objects
        if o["kind"] == "Deployment"
    }

    assert {name for name, spec in deployments.items() if "replicas" not in spec} == {
        f"everything-worker-{pool}" for pool in ("cpu", "jobs", "waits", "asks")
    }
    scaled = {
        o["spec"]["scaleTargetRef"]["name"]
        for o in everything.objects
        if "scaleTargetRef" in o.get("spec", {})
    }
    assert scaled == {
        name for name, spec in deployments.items() if "replicas" not in spec
    }


def test_keda_counts_what_is_ready_and_running_of_the_pools_own_queues(
    everything: Release,
) -> None:
    prometheus = everything.get("ScaledObject", "everything-worker-waits")["spec"][
        "triggers"
    ]
    postgres = everything.get("ScaledObject", "everything-worker-asks")["spec"][
        "triggers"
    ]

    labels = 'namespace="jobs",job="rel",queue=~"mail|mail[.]bulk"'
    assert all(f"{{{labels}" in t["metadata"]["query"] for t in prometheus)
    assert prometheus[0]["metadata"]["threshold"] == "16"
    assert postgres[0]["metadata"]["query"] == (
        "select coalesce(sum(running + case when paused then 0 else ready end), 0)::float8"
        " from redrive.depths_v1() where queue in ('mail')"
    )


@pytest.mark.parametrize(
    ("pool", "is_protected"),
    [
        ({"replicas": 1}, False),
        ({"replicas": 2}, True),
        ({"replicas": 2, "podDisruptionBudget": {"enabled": False}}, False),
        ({"autoscaling": {"type": "hpa"}}, True),
        ({"autoscaling": {"type": "hpa", "maxReplicas": 1}}, False),
    ],
)
def test_a_disruption_budget_needs_a_second_pod(
    render: Render, pool: dict[str, Any], is_protected: bool
) -> None:
    assert bool(render(with_pool(**pool)).names("PodDisruptionBudget")) == is_protected


@pytest.mark.parametrize(
    ("values", "mode", "is_hook"),
    [
        ({"database": LOGINS}, "hook", True),
        ({"database": LOGINS}, "job", False),
        ({"postgres": {"trial": {"enabled": True}}}, "hook", False),
    ],
)
def test_the_migration_is_a_hook_unless_its_database_comes_with_the_release(
    render: Render, values: dict[str, Any], mode: str, is_hook: bool
) -> None:
    release = render(values | {"migrations": {"mode": mode}})

    assert [hook["kind"] for hook in release.hooks].count("Job") == int(is_hook)
    assert len(release.names("Job")) == 1


def test_migrations_can_be_left_to_the_user(render: Render) -> None:
    logins = {login: LOGINS[login] for login in ("worker", "operator")}
    release = render({"database": logins, "migrations": {"mode": "none"}})

    assert release.names("Job") == set()
    assert (
        "redrive migrate --purge-every '17 3 * * *' --redrive-every 'never'"
        in release.notes
    )


@pytest.mark.parametrize(
    ("deadline", "patience"), [(240, "180s"), (3600, "2700s"), (10, "7s")]
)
def test_the_migration_gives_up_with_a_reason_before_its_deadline(
    render: Render, deadline: int, patience: str
) -> None:
    """O22: Kubernetes deleted the pod at 240 s, and its reason with it; it waited for 600 s."""
    release = render(
        {"database": LOGINS, "migrations": {"activeDeadlineSeconds": deadline}}
    )
    spec = release.get("Job", "rel-migrate")["spec"]
    ignored, fatal = spec["podFailurePolicy"]["rules"]

    assert spec["activeDeadlineSeconds"] == deadline
    found = environment(release, "Job", "rel-migrate")
    assert found["REDRIVE_MIGRATE_PATIENCE"] == patience
    shown = container(release, "Job", "rel-migrate")["terminationMessagePolicy"]
    assert shown == "FallbackToLogsOnError"
    assert ignored["action"] == "Ignore"
    # A failed pod of a failed Job stays; another try would run into the deadline.
    assert fatal["action"] == "FailJob"
    assert Exit.SCHEMA in fatal["onExitCodes"]["values"]


def test_the_program_knows_each_variable_of_the_chart(everything: Release) -> None:
    """Every pod refuses an unknown variable: the migration did, and nothing started."""
    found = {
        variable["name"]
        for each in everything.objects
        for pod in pods_of(each)
        for container in pod["containers"]
        for variable in container.get("env", ())
        if variable["name"].startswith("REDRIVE_")
    }
    options = {
        option.envvar
        for _, command in commands()
        for option in command.params
        if option.envvar
    }
    known = {f"REDRIVE_{field.upper()}" for field in Settings.model_fields}

    assert found - options - known == set()
    assert "REDRIVE_MIGRATE_PATIENCE" in found


def test_the_owners_url_is_in_the_cluster_only_while_it_migrates(
    everything: Release,
) -> None:
    found = everything.get("Secret", "everything-database-owner")["metadata"][
        "annotations"
    ]

    assert found["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert (
        found["helm.sh/hook-delete-policy"]
        == "before-hook-creation,hook-succeeded,hook-failed"
    )


def secrets_of(release: Release) -> dict[str, set[str]]:
    """The Secrets that each container has mounted."""
    return {
        f"{o['kind']}/{o['metadata']['name']}/{c['name']}": {
            v["secret"]["secretName"]
            for v in pod["volumes"]
            if v.get("secret")
            and v["name"] in {mount["name"] for mount in c["volumeMounts"]}
        }
        for o in release.objects
        for pod in pods_of(o)
        for c in pod["containers"]
    }


def test_each_part_has_the_login_it_needs_and_no_other(render: Render) -> None:
    """S12: what listens on the network has the viewer's login, and no keyring."""
    values = with_pool() | {
        "database": LOGINS | {"viewer": {"existingSecret": "viewer"}},
        "encryption": {"existingSecret": "keyring"},
        "redrive": {"automatic": {"enabled": True, "filter": {"queue": ["mail"]}}},
    }

    assert secrets_of(render(values)) == {
        "Job/rel-migrate/redrive": {"owner"},
        "Deployment/rel-worker-mail/worker": {"worker", "keyring"},
        "Pod/rel-test/canary": {"worker"},
        "Deployment/rel-exporter/exporter": {"viewer"},
        "Deployment/rel-exporter/tools": {"operator", "keyring"},
        "CronJob/rel-purge/redrive": {"operator"},
        "CronJob/rel-redrive/redrive": {"operator"},
        "CronJob/rel-redrive-template/redrive": {"operator"},
    }


def test_without_a_viewer_the_exporter_has_the_operators_login_and_the_notes_say_so(
    render: Render,
) -> None:
    """S12: values that name three logins go on; the keyring is out of reach all the same."""
    release = render({"database": LOGINS, "encryption": {"existingSecret": "keyring"}})

    assert secrets_of(release)["Deployment/rel-exporter/exporter"] == {"operator"}
    assert "database.viewer" in release.notes


def test_kubectl_exec_reaches_the_container_with_the_tools_which_listens_to_nobody(
    render: Render,
) -> None:
    """S12: `kubectl exec deploy/rel-exporter -- redrive ...` goes on as it did."""
    template = render({"database": LOGINS}).get("Deployment", "rel-exporter")["spec"][
        "template"
    ]
    exporter, tools = template["spec"]["containers"]
    notes = template["metadata"]["annotations"]

    assert notes["kubectl.kubernetes.io/default-container"] == tools["name"] == "tools"
    assert "ports" not in tools
    # A place to write that both had would be a way from one to the other.
    writable = {v["name"] for v in template["spec"]["volumes"] if "emptyDir" in v}
    mounted = [m["name"] for c in (exporter, tools) for m in c["volumeMounts"]]
    assert sorted(name for name in mounted if name in writable) == ["tmp", "tools-tmp"]

    alone = render({"database": LOGINS, "exporter": {"tools": {"enabled": False}}})
    pod = alone.get("Deployment", "rel-exporter")["spec"]["template"]["spec"]
    assert [c["name"] for c in pod["containers"]] == ["exporter"]


def pods_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Every pod specification in an object, with or without a template around it."""
    if found["kind"] == "Pod":
        return [found["spec"]]
    spec = found.get("spec") or {}
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    return [spec["template"]["spec"]] if "template" in spec else []


def test_tls_is_files_and_their_names(everything: Release) -> None:
    assert settings(everything, "Deployment", "everything-worker-plain", "PG") == {
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": "/etc/redrive/ca/ca.crt",
        "PGSSLCERT": "/etc/redrive/client/tls.crt",
        "PGSSLKEY": "/etc/redrive/client/tls.key",
    }
    pod = everything.get("Deployment", "everything-worker-plain")["spec"]["template"][
        "spec"
    ]
    client = next(v["secret"] for v in pod["volumes"] if v["name"] == "client")
    assert client["defaultMode"] == 0o440


def test_the_keyring_is_a_file_of_those_who_read_payloads(
    everything: Release, render: Render
) -> None:
    mounting = {
        found["metadata"]["name"]: volume["secret"]
        for found in everything.objects
        for pod in pods_of(found)
        for volume in pod["volumes"]
        if volume["name"] == "encryption"
    }

    assert set(mounting) == everything.names("Deployment")
    for name, secret in mounting.items():
        (item,) = secret["items"]
        pod = everything.get("Deployment", name)["spec"]["template"]["spec"]
        reader = next(
            c for c in pod["containers"] if c["name"] in {"worker", "tools", "console"}
        )
        mounts = {m["name"]: m["mountPath"] for m in reader["volumeMounts"]}
        found = {e["name"]: e.get("value") for e in reader["env"]}
        assert (secret["secretName"], item["key"]) == ("keyring", "ring.txt")
        assert (
            found["REDRIVE_ENCRYPTION_KEYS_FILE"]
            == f"{mounts['encryption']}/{item['path']}"
        )
    assert "ENCRYPTION" not in render(with_pool()).text


def test_a_pod_may_wait_for_the_schema_as_long_as_it_does(everything: Release) -> None:
    for name in ("everything-exporter", "everything-worker-plain"):
        probe = container(everything, "Deployment", name)["startupProbe"]
        wait = int(
            environment(everything, "Deployment", name)["REDRIVE_STARTUP_TIMEOUT"] or 0
        )
        assert probe["periodSeconds"] * probe["failureThreshold"] > wait


def test_objectives_are_put_into_the_database_after_each_install_and_upgrade(
    everything: Release, render: Render
) -> None:
    job = everything.get("Job", "everything-objectives")
    command = container(everything, "Job", "everything-objectives")["args"]

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade"
    assert command[:2] == ["objective", "apply"]
    assert json.loads(command[2]) == {
        "payments": {"page_on_first_dead_letter": 1, "dead_ratio": 0.001},
        "payments/charge.card": {"dlq_added_5m": 3},
        "*": {"dlq_oldest_age_seconds": 2592000},
    }
    assert (
        "Job/rel-objectives"
        not in render({"database": LOGINS, "queues": {"mail": {}}}).names()
    )


def test_owners_are_put_into_the_database_after_each_install_and_upgrade(
    everything: Release, render: Render
) -> None:
    """M4: who cares for a queue is written down beside its thresholds."""
    job = everything.get("Job", "everything-owners")
    command = container(everything, "Job", "everything-owners")["args"]

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade"
    assert command[:2] == ["owner", "apply"]
    assert json.loads(command[2]) == {
        "payments": {"owner": "money", "contact": "#money"},
        "*/mail.send": {"owner": "mail"},
    }
    assert (
        "Job/rel-owners"
        not in render({"database": LOGINS, "queues": {"mail": {}}}).names()
    )


def test_retention_is_put_into_the_database_after_each_install_and_upgrade(
    everything: Release, render: Render
) -> None:
    job = everything.get("Job", "everything-retention")
    command = container(everything, "Job", "everything-retention")["args"]

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade"
    assert command[:4] == ["retention", "set", "audit=800d", "keys=14d"]
    assert "Job/rel-retention" not in render({"database": LOGINS}).names()


def test_the_automatic_redrive_says_what_by_environment(everything: Release) -> None:
    assert settings(
        everything, "CronJob", "everything-redrive", "REDRIVE_REDRIVE_"
    ) == {
        "REDRIVE_REDRIVE_YES": "true",
        "REDRIVE_REDRIVE_CATEGORY": "transient",
        "REDRIVE_REDRIVE_QUEUE": "mail bulk",
        "REDRIVE_REDRIVE_UNTIL": "1h",
        "REDRIVE_REDRIVE_RATE": "1",
        "REDRIVE_REDRIVE_LIMIT": "500",
        "REDRIVE_REDRIVE_MAX_REDRIVES": "3",
        "REDRIVE_REDRIVE_WHY": "automatic redrive",
        "REDRIVE_REDRIVE_EVERY": "*/15 * * * *",
    }


def test_an_automatic_redrive_that_aborted_is_not_tried_again_at_once(
    everything: Release,
) -> None:
    """O23: each of its three tries started a campaign, and more jobs died again."""
    job = everything.get("CronJob", "everything-redrive")["spec"]["jobTemplate"]["spec"]
    fatal = [r for r in job["podFailurePolicy"]["rules"] if r["action"] == "FailJob"]

    assert Exit.ABORTED in fatal[0]["onExitCodes"]["values"]


def test_the_template_for_ad_hoc_redrives_never_runs_and_does_nothing_unless_told(
    everything: Release,
) -> None:
    template = everything.get("CronJob", "everything-redrive-template")["spec"]
    found = settings(
        everything, "CronJob", "everything-redrive-template", "REDRIVE_REDRIVE_"
    )

    assert template["suspend"] is True
    assert found == {}
    command = container(everything, "CronJob", "everything-redrive-template")["args"]
    assert command == ["dlq", "redrive"]


@pytest.mark.parametrize(
    ("purge", "said"),
    [
        ({}, "17 3 * * *"),
        ({"schedule": "0 3 * * 1"}, "0 3 * * 1"),
        ({"schedule": "0 3 * * 1", "every": "2w"}, "2w"),
        ({"suspend": True}, "17 3 * * *"),  # a pause is what nobody remembers
        ({"every": ""}, "never"),
        ({"enabled": False}, "never"),
    ],
)
def test_the_migration_says_what_is_expected_to_run(
    render: Render, purge: dict[str, Any], said: str
) -> None:
    """O12: a purge that never ran was never missed, and a weekly one was missed each week."""
    release = render({"database": LOGINS, "purge": purge})
    found = environment(release, "Job", "rel-migrate")

    assert (found["REDRIVE_PURGE_EVERY"], found["REDRIVE_REDRIVE_EVERY"]) == (
        said,
        "never",
    )
    if purge.get("enabled", True):
        told = environment(release, "CronJob", "rel-purge").get(
            "REDRIVE_PURGE_EVERY", "never"
        )
        assert told == said


def test_a_report_is_sent_on_a_schedule_with_its_secrets_as_files(
    everything: Release,
) -> None:
    """M4: nothing came by itself before a review."""
    job = container(everything, "CronJob", "everything-report")
    (mount,) = [m for m in job["volumeMounts"] if m["name"] == "files"]
    spec = everything.get("CronJob", "everything-report")["spec"]
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    (volume,) = [v for v in pod["volumes"] if v["name"] == "files"]

    assert job["args"] == ["dlq", "report"]
    assert settings(everything, "CronJob", "everything-report", "REDRIVE_REPORT_") == {
        "REDRIVE_REPORT_SINCE": "7d",
        "REDRIVE_REPORT_POST": "true",
        "REDRIVE_REPORT_WEBHOOK_URL_FILE": "/etc/redrive/report/webhook",
        "REDRIVE_REPORT_MAIL_TO": "team@shop.example",
        "REDRIVE_REPORT_MAIL_FROM": "redrive@shop.example",
        "REDRIVE_REPORT_SMTP_URL_FILE": "/etc/redrive/report/smtp",
    }
    assert mount["mountPath"] == "/etc/redrive/report"
    assert [
        (s["secret"]["name"], s["secret"]["items"])
        for s in volume["projected"]["sources"]
    ] == [
        ("slack", [{"key": "url", "path": "webhook"}]),
        ("smtp", [{"key": "server", "path": "smtp"}]),
    ]
    policy = everything.get("NetworkPolicy", "everything-report")["spec"]
    assert [p["port"] for p in policy["egress"][0]["ports"]] == [443, 465, 587]


@pytest.mark.parametrize(
    "name",
    [
        *("everything-redrive", "everything-redrive-template"),
        *("everything-purge", "everything-report"),
    ],
)
def test_a_cron_job_acts_in_the_name_of_its_job(everything: Release, name: str) -> None:
    actor = next(
        e
        for e in container(everything, "CronJob", name)["env"]
        if e["name"] == "REDRIVE_ACTOR"
    )

    assert actor["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['job-name']"


def test_selectors_find_the_pods_of_their_own_component_only(
    everything: Release,
) -> None:
    labels = {
        o["metadata"]["name"]: o["spec"]["template"]["metadata"]["labels"]
        for o in everything.objects
        if o["kind"] == "Deployment"
    }
    for o in everything.objects:
        selector = o.get("spec", {}).get("selector") or {}
        wanted = selector.get(
            "matchLabels", selector if o["kind"] == "Service" else None
        )
        if not wanted or o["kind"] in {"PodMonitor", "ServiceMonitor"}:
            continue
        matching = {
            name for name, found in labels.items() if wanted.items() <= found.items()
        }
        assert matching == {o["metadata"]["name"]}, o["kind"]


@pytest.mark.parametrize(
    "label", ["app.kubernetes.io/name", "redrive/pool", "helm.sh/chart"]
)
@pytest.mark.parametrize(
    "where",
    [("commonLabels",), ("pods", "labels"), ("workerDefaults", "podLabels")],
    ids=".".join,
)
def test_labels_of_values_never_replace_those_of_a_selector(
    render: Render, where: tuple[str, ...], label: str
) -> None:
    """O17: commonLabels replaced labels that selectors use, and nothing found its pods."""
    values: Any = {label: "mine"}
    for name in reversed(where):
        values = {name: values}

    with pytest.raises(HelmRefusedError) as refused:
        render(with_pool() | values)

    assert label in str(refused.value)


def test_labels_of_values_are_on_the_pods(render: Render) -> None:
    values = with_pool(podLabels={"team": "a"}) | {
        "pods": {"labels": {"team": "b", "tier": "c"}}
    }
    template = render(values).get("Deployment", "rel-worker-mail")["spec"]["template"]
    labels = template["metadata"]["labels"]

    assert (labels["team"], labels["tier"], labels["redrive/pool"]) == (
        "a",
        "c",
        "mail",
    )


def test_words_that_yaml_takes_for_something_else_stay_words(render: Render) -> None:
    """O17: a pool named `no` gave a boolean label; names of classes and Secrets went unquoted."""
    values = {
        "database": {login: {"existingSecret": "on"} for login in LOGINS}
        | {"tls": {"mode": "verify-full", "caSecret": {"name": "1e3", "key": "yes"}}},
        "encryption": {"existingSecret": "0x10", "key": "off"},
        "workers": {
            "no": {"handlers": "a:b", "handlersConfigMap": "123", "replicas": 2}
        },
        "pods": {"priorityClassName": "1e3"},
        "serviceAccount": {"create": False, "name": "true"},
        "commonLabels": {"team": "null", "cost-center": "12345"},
        "image": {"repository": "redrive", "tag": "1.10"},
    }
    release = render(values)

    for found in release.objects:
        assert {type(v) for v in found["metadata"]["labels"].values()} == {str}
        for pod in pods_of(found):
            assert pod["priorityClassName"] == "1e3"
            assert pod.get("serviceAccountName", "true") == "true"
            secrets = [v["secret"] for v in pod["volumes"] if "secret" in v]
            assert {s["secretName"] for s in secrets} <= {"on", "1e3", "0x10"}
            assert {type(i["key"]) for s in secrets for i in s["items"]} == {str}
    worker = release.get("Deployment", "rel-worker-no")["spec"]
    assert worker["selector"]["matchLabels"]["redrive/pool"] == "no"
    [budget] = [o for o in release.objects if o["kind"] == "PodDisruptionBudget"]
    assert (
        budget["spec"]["selector"]["matchLabels"] == worker["selector"]["matchLabels"]
    )


def test_the_names_of_monitoring_are_words_as_well(render: Render) -> None:
    """O17: two objects with one label twice were refused by Helm, not by us."""
    values = {
        "database": LOGINS,
        "commonLabels": {"release": "on"},
        "monitoring": {
            "labels": {"release": "yes", "grafana_dashboard": "2"},
            "podMonitor": {"enabled": True},
            "prometheusRule": {"enabled": True},
            "dashboards": {"enabled": True},
        },
    }
    release = render(values)

    assert release.get("PodMonitor", "rel")["metadata"]["labels"]["release"] == "on"
    [dashboard, *_] = [
        o for o in release.objects if "dashboard-" in o["metadata"]["name"]
    ]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_two_releases_in_one_namespace_are_two_jobs_to_prometheus(
    render: Render,
) -> None:
    """O15: as one job, the growth of one hid behind the other's higher counter."""
    values = with_pool() | {
        "workers": {"mail": {"handlers": "a:b", "autoscaling": KEDA}},
        "monitoring": {
            "podMonitor": {"enabled": True},
            "serviceMonitor": {"enabled": True},
            "prometheusRule": {"enabled": True},
        },
    }
    jobs = {}
    for name in ("one", "two"):
        release = render(values, name=name)
        monitors = [o["spec"] for o in release.objects if o["kind"].endswith("Monitor")]
        relabelings = [
            relabeling
            for spec in monitors
            for endpoint in spec.get("podMetricsEndpoints", spec.get("endpoints"))
            for relabeling in endpoint["relabelings"]
            if relabeling["targetLabel"] == "job"
        ]
        selected = set(re.findall(r'job="([^"]*)"', release.text))
        assert len(relabelings) == 2
        jobs[name] = {r["replacement"] for r in relabelings} | selected

    assert jobs == {"one": {"one"}, "two": {"two"}}


def test_the_rules_read_the_figures_of_their_release_alone(render: Render) -> None:
    """O6: those of another namespace were evaluated as well, without its links and silences."""
    monitoring = {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    release = render({"database": LOGINS, "monitoring": monitoring}, name="shop")

    expressions = [
        rule["expr"]
        for o in release.objects
        if o["kind"] == "PrometheusRule"
        for group in o["spec"]["groups"]
        for rule in group["rules"]
    ]
    metric = re.compile(r"redrive[_:][a-z0-9_:]+([^a-z0-9_:].{36}|.{0,36})", re.DOTALL)
    assert len(expressions) > 30
    for expression in expressions:
        for found in metric.finditer(expression):
            assert found[1].startswith('{namespace="jobs",job="shop"'), expression


def test_closed_to_the_network_unless_values_open_it(render: Render) -> None:
    """S21: there was no NetworkPolicy by default, and with one any pod could read metrics."""
    urls = {
        login: {"url": "postgresql://u:5:7@[::1]:6432,h:6433/d?x=1"} for login in LOGINS
    }
    release = render(
        with_pool() | {"database": urls | {"viewer": {"url": "host=h port=6434"}}}
    )

    metrics = release.get("NetworkPolicy", "rel-metrics")["spec"]["ingress"]
    assert [
        peer for rule in metrics for peer in rule["from"] if "namespaceSelector" in peer
    ] == [
        {
            "namespaceSelector": {
                "matchLabels": {"kubernetes.io/metadata.name": "monitoring"}
            }
        }
    ]
    names, database = release.get("NetworkPolicy", "rel")["spec"]["egress"]
    assert {port["port"] for port in names["ports"]} == {53, 5353}
    assert [port["port"] for port in database["ports"]] == [6432, 6433, 6434]
    assert "6432, 6433, 6434" in release.notes
    [handlers] = release.get("NetworkPolicy", "rel-worker")["spec"]["egress"]
    blocked = [
        block
        for peer in handlers["to"]
        for block in peer.get("ipBlock", {}).get("except", [])
    ]
    assert blocked == ["169.254.169.254/32", "fd00:ec2::254/128"]


@pytest.mark.parametrize(
    ("policy", "egress"),
    [
        ({}, [{"port": 5432, "protocol": "TCP"}]),
        ({"databasePort": 6432}, [{"port": 6432, "protocol": "TCP"}]),
    ],
)
def test_a_database_whose_url_is_a_secret_is_reached_on_the_port_that_values_name(
    render: Render, policy: dict[str, Any], egress: list[Any]
) -> None:
    """S21: its address is unknown then, so the port is all there is to go by."""
    release = render({"database": LOGINS, "networkPolicy": policy})

    assert release.get("NetworkPolicy", "rel")["spec"]["egress"][1] == {"ports": egress}


def test_a_part_of_a_password_is_never_taken_for_a_port(render: Render) -> None:
    logins = {
        login: {"url": "host=h password='port=4711 :4712,' user=u"} for login in LOGINS
    }
    release = render({"database": logins})

    assert "471" not in json.dumps(release.get("NetworkPolicy", "rel"))


def test_an_extra_object_knows_its_release(render: Render) -> None:
    """O19: extraObjects were not templates."""
    extra = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "{{ .Release.Name }}-x"},
    }

    assert (
        "ConfigMap/rel-x"
        in render({"database": LOGINS, "extraObjects": [extra]}).names()
    )


def test_a_pool_has_its_own_identity_priority_and_containers(
    everything: Release,
) -> None:
    """O19: none of these could be set, but by a fork of the chart."""
    deployment = everything.get("Deployment", "everything-worker-plain")
    pod = deployment["spec"]["template"]["spec"]

    assert deployment["metadata"]["annotations"] == {
        "example.com/team": "money",
        "reloader.stakater.com/auto": "true",
    }
    assert pod["serviceAccountName"] == "cloud-identity"
    assert pod["priorityClassName"] == "high"
    assert [c["name"] for c in pod["initContainers"]] == ["proxy"]
    assert [c["name"] for c in pod["containers"]] == ["worker", "sidecar"]
    other = everything.get("Deployment", "everything-worker-files")["spec"]["template"][
        "spec"
    ]
    assert other["serviceAccountName"] == "everything"


def test_a_monitor_takes_relabelings_and_limits(everything: Release) -> None:
    """O19: scrapeTimeout, sampleLimit, relabelings and metricRelabelings could not be set."""
    spec = everything.get("PodMonitor", "everything")["spec"]
    endpoint, of_console = spec["podMetricsEndpoints"]

    assert of_console == endpoint | {"port": "http"}
    assert spec["sampleLimit"] == 50000
    assert endpoint["scrapeTimeout"] == "10s"
    assert [r["targetLabel"] for r in endpoint["relabelings"]] == [
        "job",
        "cell",
        "node",
    ]
    assert [r["action"] for r in endpoint["metricRelabelings"]] == ["drop"]


def test_workers_and_exporter_are_one_job_to_prometheus(render: Render) -> None:
    release = render(with_pool() | {"monitoring": {"podMonitor": {"enabled": True}}})

    monitor = release.get("PodMonitor", "rel")["spec"]
    [endpoint] = monitor["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [
        {"action": "replace", "targetLabel": "job", "replacement": "rel"}
    ]
    components = monitor["selector"]["matchExpressions"][0]["values"]
    assert components == ["worker", "exporter", "console"]
    for name in ("rel-worker-mail", "rel-exporter"):
        labels = release.get("Deployment", name)["spec"]["template"]["metadata"][
            "labels"
        ]
        assert labels["app.kubernetes.io/name"] == "redrive"


def test_pods_are_replaced_when_their_secret_changes(render: Render) -> None:
    def checksum(url: str) -> str:
        values = with_pool() | {"database": LOGINS | {"worker": {"url": url}}}
        template = render(values).get("Deployment", "rel-worker-mail")["spec"][
            "template"
        ]
        return template["metadata"]["annotations"]["checksum/config"]

    assert checksum("postgresql://a@b/c") != checksum("postgresql://a@b/d")


def scoped(expr: str, scope: str) -> str:
    """An expression of the rules that selects series of one installation alone."""
    expr = expr.replace('job="redrive"', scope.rpartition(",")[2])
    expr = re.sub(r"(redrive[_:][a-z0-9_:]+)\{", rf"\1{{{scope},", expr)
    return re.sub(
        r"(redrive[_:][a-z0-9_:]+)([^a-z0-9_:{]|$)", rf"\1{{{scope}}}\2", expr
    )


def test_the_rules_are_installed_as_they_are_tested(everything: Release) -> None:
    """O6: but for the selectors."""
    for path in (CHART / "files" / "alerts").glob("*.yaml"):
        name = "everything-" + path.stem.removeprefix("redrive.").replace(".", "-")
        rules = yaml.safe_load(path.read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule["expr"] = scoped(rule["expr"], 'namespace="jobs",job="rel"')
        assert everything.get("PrometheusRule", name)["spec"] == rules


@pytest.mark.parametrize("wanted", [False, True])
def test_new_groups_alert_only_if_somebody_wants_it(
    render: Render, wanted: bool
) -> None:
    rule = {"enabled": True} | ({"newGroups": True} if wanted else {})
    monitoring = {"prometheusRule": rule, "podMonitor": {"enabled": True}}
    release = render({"database": LOGINS, "monitoring": monitoring})

    installed = json.dumps(
        [o for o in release.objects if o["kind"] == "PrometheusRule"]
    )

    assert "RedriveGroupRegressed" in installed
    assert ("RedriveGroupNew" in installed) is wanted


def test_an_alert_can_be_left_out_and_links_can_lead_to_ones_own_runbook(
    render: Render,
) -> None:
    rule = {
        "enabled": True,
        "disabledAlerts": ["RedriveMetricsAbsent"],
        "runbookUrl": "https://wiki.example/redrive",
        "grafanaUrl": "https://graphs.example/",
        "consoleUrl": "https://shop.example/dead",
    }
    monitoring = {"prometheusRule": rule, "podMonitor": {"enabled": True}}
    release = render({"database": LOGINS, "monitoring": monitoring})

    groups = [
        group
        for o in release.objects
        if o["kind"] == "PrometheusRule"
        for group in o["spec"]["groups"]
    ]
    alerts = {
        rule["alert"]: rule["annotations"]
        for group in groups
        for rule in group["rules"]
        if "alert" in rule
    }
    assert "RedriveDeadLettersGrowingFast" in alerts
    assert "RedriveMetricsAbsent" not in alerts
    page = alerts["RedriveDeadLettersGrowingFast"]
    assert page["runbook_url"].startswith("https://wiki.example/redrive#")
    assert page["dashboard_url"].startswith("https://graphs.example/d/")
    of_cell = "{{ with $labels.cell }}/cells/{{ . }}{{ end }}"
    assert page["console_url"].startswith(
        f"https://shop.example/dead{of_cell}/dead-letters?"
    )
    links = {
        link
        for notes in alerts.values()
        for name, link in notes.items()
        if name.endswith("_url")
    }
    assert [
        link
        for link in links
        if not link.startswith(("https://wiki.", "https://graphs.", "https://shop."))
    ] == []


def test_dashboards_lead_to_ones_own_runbook(render: Render) -> None:
    monitoring = {
        "dashboards": {"enabled": True},
        "prometheusRule": {"runbookUrl": "https://wiki.example/redrive"},
    }
    release = render({"database": LOGINS, "monitoring": monitoring})

    text = "".join(
        o["data"][name]
        for o in release.objects
        if "dashboard-" in o["metadata"]["name"]
        for name in o["data"]
    )
    assert "https://wiki.example/redrive" in text
    assert "runbooks.example" not in text


def test_links_without_an_address_are_left_out(render: Render) -> None:
    """O18: whoever was woken was sent to runbooks.example and grafana.example."""
    monitoring = {
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    }
    release = render({"database": LOGINS, "monitoring": monitoring})

    assert re.findall(r"\w+\.example\b", release.text) == []
    (rules,) = (o for o in release.objects if o["kind"] == "PrometheusRule")
    alerts = [
        r for group in rules["spec"]["groups"] for r in group["rules"] if "alert" in r
    ]
    assert {name for alert in alerts for name in alert["annotations"]} == {
        "summary",
        "description",
    }
    boards = [
        json.loads(text)
        for o in release.objects
        if "-dashboard-" in o["metadata"]["name"]
        for text in o["data"].values()
    ]
    assert len(boards) == 3
    for board in boards:
        assert "${runbook}" not in json.dumps(board)
        assert "job" in {variable["name"] for variable in board["templating"]["list"]}
        assert len(board["links"]) == 1
    assert "monitoring.prometheusRule: runbookUrl, grafanaUrl." in release.notes


def test_the_notes_ask_for_no_address_that_is_there(everything: Release) -> None:
    assert "Links of alerts" not in everything.notes


def test_dashboards_are_installed_as_they_are(
    render: Render, with_dashboard: Path
) -> None:
    release = render(read_values(EVERYTHING), chart=with_dashboard)

    shipped = {
        name: text
        for o in release.objects
        if o["kind"] == "ConfigMap" and "-dashboard-" in o["metadata"]["name"]
        for name, text in o["data"].items()
    }
    assert shipped == {
        path.name: path.read_text()
        for path in (with_dashboard / "files" / "dashboards").glob("*.json")
    }


def test_the_trial_database_says_that_it_is_thrown_away(render: Render) -> None:
    release = render({"postgres": {"trial": {"enabled": True}}})

    assert "THROW-AWAY" in release.notes
    postgres = release.get("Deployment", "rel-postgres")["spec"]["template"]["spec"]
    assert postgres["securityContext"]["runAsUser"] == 999
    assert {"name": "data", "emptyDir": {}} in postgres["volumes"]


def test_the_notes_name_three_commands_that_fit_the_release(render: Render) -> None:
    notes = render({"database": LOGINS}, name="shop").notes

    assert "helm test shop --namespace jobs" in notes
    assert "deploy/shop-exporter -- redrive queue ls" in notes
    assert "--from=cronjob/shop-redrive-template" in notes


def test_numbers_stay_numbers_when_they_are_large(render: Render) -> None:
    automatic = {"enabled": True, "filter": {"queue": ["a"]}, "limit": 1000000}
    redrive = {"activeDeadlineSeconds": 2000000, "automatic": automatic}
    release = render(
        {
            "database": LOGINS,
            "cronJobs": {"ttlSecondsAfterFinished": 1209600},
            "redrive": redrive,
        }
    )

    job = release.get("CronJob", "rel-redrive")["spec"]["jobTemplate"]["spec"]
    numbers = [job["ttlSecondsAfterFinished"], job["activeDeadlineSeconds"]]
    assert json.dumps(numbers) == "[1209600, 2000000]"
    assert (
        environment(release, "CronJob", "rel-redrive")["REDRIVE_REDRIVE_LIMIT"]
        == "1000000"
    )


def test_numbers_of_pools_stay_numbers_when_they_are_large(render: Render) -> None:
    """O17: from a million on they were rendered with an exponent."""
    scaled = {"type": "keda", "maxReplicas": 1000000, "jobsPerPod": 5000000} | {
        "keda": KEDA["keda"] | {"fallbackReplicas": 1000000}
    }
    hpa = {"type": "hpa", "maxReplicas": 1000000, "jobsPerPod": 5000000}
    pools = {
        "a": {"replicas": 1000000},
        "b": {"autoscaling": scaled},
        "c": {"autoscaling": hpa},
    }
    defaults = {"handlers": "a:b", "terminationGracePeriodSeconds": 2000000}
    release = render({"database": LOGINS, "workerDefaults": defaults, "workers": pools})

    assert not re.search(r"\de[+]\d", release.manifest)
    assert release.get("Deployment", "rel-worker-a")["spec"]["replicas"] == 1000000
    [trigger, _] = release.get("ScaledObject", "rel-worker-b")["spec"]["triggers"]
    assert trigger["metadata"]["threshold"] == "5000000"


CONSOLE = {
    "enabled": True,
    "logins": {
        "viewer": {"existingSecret": "seers"},
        "operator": {"url": "postgresql://h/d"},
    },
    "tokens": {"existingSecret": "tokens", "key": "list"},
}


def console(**more: Any) -> dict[str, Any]:
    return {"database": LOGINS, "console": CONSOLE | more}


def test_a_console_knows_the_logins_of_its_roles_and_no_other(render: Render) -> None:
    release = render(console())

    assert settings(release, "Deployment", "rel-console", "REDRIVE_CONSOLE") == {
        "REDRIVE_CONSOLE_PORT": "9809",
        "REDRIVE_CONSOLE_VIEWER_URL_FILE": "/etc/redrive/console/viewer/url",
        "REDRIVE_CONSOLE_OPERATOR_URL_FILE": "/etc/redrive/console/operator/url",
        "REDRIVE_CONSOLE_TOKENS": "/etc/redrive/console/tokens",
    }
    assert "REDRIVE_DATABASE_URL_FILE" not in environment(
        release, "Deployment", "rel-console"
    )
    (pod,) = pods_of(release.get("Deployment", "rel-console"))
    projected = next(v["projected"] for v in pod["volumes"] if v["name"] == "secrets")
    assert [
        (
            s["secret"]["name"],
            s["secret"]["items"][0]["key"],
            s["secret"]["items"][0]["path"],
        )
        for s in projected["sources"]
    ] == [
        ("seers", "url", "viewer/url"),
        ("rel-database-console-operator", "url", "operator/url"),
        ("tokens", "list", "tokens"),
    ]
    assert [s["secret"]["secretName"] for s in pod["volumes"] if "secret" in s] == []
    assert "PodDisruptionBudget" not in {o["kind"] for o in release.objects}


def test_each_way_to_sign_in_reaches_the_console(everything: Release) -> None:
    found = settings(everything, "Deployment", "everything-console", "REDRIVE_CONSOLE")

    assert (
        load_settings(**{name[8:].lower(): value for name, value in found.items()})
        is not None
    )
    assert (
        found["REDRIVE_CONSOLE_GROUPS"]
        == "oncall=operator,role:leads=approver,staff=viewer"
    )
    assert found["REDRIVE_CONSOLE_PROXIES"] == "10.9.0.1,fd00::/8"
    assert found["REDRIVE_CONSOLE_OIDC_ISSUER"] == "https://id.example/realms/staff"
    secret = found["REDRIVE_CONSOLE_OIDC_CLIENT_SECRET_FILE"]
    assert secret == "/etc/redrive/console/oidc/secret"
    assert found["REDRIVE_CONSOLE_KEY_FILE"] == "/etc/redrive/console/key"
    assert found["REDRIVE_CONSOLE_URL"] == "https://redrive.example"


def test_the_console_is_reached_by_its_host_from_where_it_may_be(
    everything: Release,
) -> None:
    rule = everything.get("Ingress", "everything-console")["spec"]["rules"][0]
    route = everything.get("HTTPRoute", "everything-console")["spec"]
    policy = everything.get("NetworkPolicy", "everything-console")["spec"]
    service = everything.get("Service", "everything-console")["spec"]
    budget = everything.get("PodDisruptionBudget", "everything-console")["spec"]

    assert (rule["host"], route["hostnames"]) == (
        "redrive.example",
        ["redrive.example"],
    )
    assert (
        rule["http"]["paths"][0]["backend"]["service"]["name"] == "everything-console"
    )
    assert route["rules"] == [
        {"backendRefs": [{"name": "everything-console", "port": 80}]}
    ]
    assert service["ports"][0]["targetPort"] == "http"
    assert policy["ingress"][0]["ports"] == [{"port": 9809, "protocol": "TCP"}]
    assert len(policy["ingress"][0]["from"]) == 2
    assert policy["egress"] == [{"ports": [{"port": 443, "protocol": "TCP"}]}]
    assert budget["maxUnavailable"] == 1


def test_alerts_lead_to_the_console_of_the_release(render: Render) -> None:
    rules = {
        "monitoring": {
            "prometheusRule": {"enabled": True},
            "podMonitor": {"enabled": True},
        }
    }
    release = render(console(url="https://mine.example") | rules)

    assert "console_url: https://mine.example/dead-letters?queue=" in release.text
    assert "redrive.example" not in release.text


def test_exporter_and_console_of_all_cells_have_their_file_and_nobody_else(
    render: Render,
) -> None:
    """Workers are of one cell, and say which: rules hold them against the figures of that cell."""
    values = console(logins={}, url="https://mine.example") | {
        "cells": {"name": "eu", "existingSecret": "fleet", "key": "all.yaml"},
        "workers": {"main": {"handlers": "a:b"}},
        "monitoring": {
            "prometheusRule": {"enabled": True},
            "podMonitor": {"enabled": True},
        },
    }
    release = render(values)

    for name in ("rel-exporter", "rel-console"):
        (pod,) = pods_of(release.get("Deployment", name))
        container = pod["containers"][0]
        env = {variable["name"]: variable["value"] for variable in container["env"]}
        assert env["REDRIVE_DATABASES"] == "/etc/redrive/cells/all.yaml"
        mount = {"name": "cells", "mountPath": "/etc/redrive/cells", "readOnly": True}
        assert mount in container["volumeMounts"]
        secret = {"secretName": "fleet", "defaultMode": 0o440}
        assert {"name": "cells", "secret": secret} in pod["volumes"]
    assert "REDRIVE_CONSOLE_OPERATOR_URL_FILE" not in release.text
    assert "REDRIVE_DATABASES" not in environment(
        release, "Deployment", "rel-worker-main"
    )
    for endpoint in release.get("PodMonitor", "rel")["spec"]["podMetricsEndpoints"]:
        of_workers = {"sourceLabels": [COMPONENT], "regex": "worker"}
        assert endpoint["relabelings"][1] == LABELLED | of_workers
    of_cell = "https://mine.example{{ with $labels.cell }}/cells/{{ . }}{{ end }}/"
    rules = next(o for o in release.objects if o["kind"] == "PrometheusRule")["spec"][
        "groups"
    ]
    links = [
        r["annotations"]["console_url"]
        for g in rules
        for r in g["rules"]
        if "alert" in r
    ]
    assert [link for link in links if not link.startswith(of_cell)] == []


COMPONENT = "__meta_kubernetes_pod_label_app_kubernetes_io_component"
LABELLED = {"action": "replace", "targetLabel": "cell", "replacement": "eu"}


def test_a_release_of_one_cell_says_so_in_all_its_figures(everything: Release) -> None:
    endpoints = everything.get("PodMonitor", "everything")["spec"][
        "podMetricsEndpoints"
    ]

    assert [endpoint["relabelings"][1] for endpoint in endpoints] == [
        LABELLED,
        LABELLED,
    ]
    assert "REDRIVE_DATABASES" not in everything.text


def test_a_first_try_brings_the_logins_of_viewer_and_operator(render: Render) -> None:
    values = {"postgres": {"trial": {"enabled": True}}}
    release = render(
        values | {"console": {"enabled": True, "tokens": {"existingSecret": "t"}}}
    )

    made = {name for name in release.names("Secret") if "console" in name}
    assert made == {"rel-database-console-viewer", "rel-database-console-operator"}
    assert (
        "kubectl port-forward --namespace jobs service/rel-console 9809:80"
        in release.notes
    )
