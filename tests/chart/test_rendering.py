"""What comes out of which values."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.conftest import EVERYTHING, EXAMPLES, Render, read_values
from tests.chart.helm import CHART, Release

LOGINS = {login: {"existingSecret": login} for login in ("owner", "worker", "operator")}


def with_pool(**pool: Any) -> dict[str, Any]:
    return {"database": LOGINS, "workers": {"mail": {"handlers": "app.jobs:jobs"} | pool}}


def container(release: Release, kind: str, name: str) -> dict[str, Any]:
    spec = release.get(kind, name)["spec"]
    while "template" in spec or "jobTemplate" in spec:
        spec = spec.get("jobTemplate", spec.get("template"))["spec"]
    return spec["containers"][0]


def environment(release: Release, kind: str, name: str) -> dict[str, str | None]:
    return {e["name"]: e.get("value") for e in container(release, kind, name)["env"]}


def settings(release: Release, kind: str, name: str, prefix: str) -> dict[str, str | None]:
    found = environment(release, kind, name)
    return {name: value for name, value in found.items() if name.startswith(prefix)}


def test_the_least_that_installs_has_an_exporter_and_timers_but_no_workers(render: Render) -> None:
    release = render({"database": LOGINS})

    assert release.names() == {
        "ServiceAccount/rel",
        "Deployment/rel-exporter",
        "Service/rel-exporter",
        "Job/rel-migrate",
        "CronJob/rel-purge",
        "CronJob/rel-redrive-template",
        "ConfigMap/rel-test",
        "Pod/rel-test",
    }
    assert "No workers yet" in release.notes


@pytest.mark.parametrize("path", [*EXAMPLES, EVERYTHING], ids=lambda path: path.stem)
def test_the_same_values_give_the_same_bytes(render: Render, path: Any) -> None:
    values = read_values(path)

    assert render(values).text == render(values, again=True).text


def test_each_example_is_shown_in_the_documentation() -> None:
    text = (CHART.parents[1] / "docs" / "kubernetes.md").read_text()

    assert [path.name for path in EXAMPLES if f"examples/{path.name}" not in text] == []


def test_settings_reach_the_worker_under_their_names(render: Render) -> None:
    pool = with_pool(
        queues=["mail", "bulk"], slots=32, runners=2, drainTimeoutSeconds=90, heartbeatTtlSeconds=45
    )
    release = render(pool)

    assert settings(release, "Deployment", "rel-worker-mail", "REDRIVE_") == {
        "REDRIVE_DATABASE_URL_FILE": "/etc/redrive/database/url",
        "REDRIVE_HANDLERS": "app.jobs:jobs",
        "REDRIVE_QUEUES": "mail,bulk",
        "REDRIVE_SLOTS": "32",
        "REDRIVE_RUNNERS": "2",
        "REDRIVE_HTTP_PORT": "9808",
        "REDRIVE_HEARTBEAT_TTL": "45",
        "REDRIVE_DRAIN_TIMEOUT": "90",
        "REDRIVE_LOG_FORMAT": "json",
        "REDRIVE_LOG_LEVEL": "info",
        "REDRIVE_STARTUP_TIMEOUT": "120",
    }


def test_all_queues_are_served_when_none_is_named(render: Render) -> None:
    assert "REDRIVE_QUEUES" not in environment(render(with_pool()), "Deployment", "rel-worker-mail")


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
    pod = render(with_pool(**pool)).get("Deployment", "rel-worker-mail")["spec"]["template"]["spec"]

    assert pod["terminationGracePeriodSeconds"] == grace


def test_a_pool_can_set_what_its_defaults_set_to_nothing_zero_and_false(render: Render) -> None:
    values = with_pool(replicas=0, queues=[], topologySpread=False) | {
        "workerDefaults": {"replicas": 5, "queues": ["mail"], "topologySpread": True, "slots": 7}
    }
    release = render(values)

    deployment = release.get("Deployment", "rel-worker-mail")["spec"]
    assert deployment["replicas"] == 0
    assert "topologySpreadConstraints" not in deployment["template"]["spec"]
    found = environment(release, "Deployment", "rel-worker-mail")
    assert "REDRIVE_QUEUES" not in found
    assert found["REDRIVE_SLOTS"] == "7"


def test_handlers_from_a_configmap_are_mounted_and_importable(render: Render) -> None:
    release = render(with_pool(handlersConfigMap="my-handlers"))

    mounts = container(release, "Deployment", "rel-worker-mail")["volumeMounts"]
    assert {"name": "handlers", "mountPath": "/handlers", "readOnly": True} in mounts
    path = environment(release, "Deployment", "rel-worker-mail")["PYTHONPATH"]
    assert path.split(":")[0] == "/handlers"


def test_an_autoscaler_owns_the_number_of_pods(everything: Release) -> None:
    deployments = {
        o["metadata"]["name"]: o["spec"] for o in everything.objects if o["kind"] == "Deployment"
    }

    assert {name for name, spec in deployments.items() if "replicas" not in spec} == {
        f"everything-worker-{pool}" for pool in ("cpu", "jobs", "waits", "asks")
    }
    scaled = {
        o["spec"]["scaleTargetRef"]["name"]
        for o in everything.objects
        if "scaleTargetRef" in o.get("spec", {})
    }
    assert scaled == {name for name, spec in deployments.items() if "replicas" not in spec}


def test_keda_counts_what_is_ready_and_running_of_the_pools_own_queues(everything: Release) -> None:
    prometheus = everything.get("ScaledObject", "everything-worker-waits")["spec"]["triggers"]
    postgres = everything.get("ScaledObject", "everything-worker-asks")["spec"]["triggers"]

    labels = 'namespace="jobs",job="redrive",queue=~"mail|mail[.]bulk"'
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
    assert "redrive migrate" in release.notes


def test_the_owners_url_is_in_the_cluster_only_while_it_migrates(everything: Release) -> None:
    found = everything.get("Secret", "everything-database-owner")["metadata"]["annotations"]

    assert found["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert found["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded,hook-failed"


def test_each_part_has_the_login_it_needs_and_no_other(render: Render) -> None:
    release = render(
        with_pool() | {"redrive": {"automatic": {"enabled": True, "filter": {"queue": ["mail"]}}}}
    )

    logins = {
        f"{o['kind']}/{o['metadata']['name']}": {
            v["secret"]["secretName"] for v in pod["volumes"] if v.get("secret")
        }
        for o in release.objects
        for pod in pods_of(o)
    }
    assert logins == {
        "Job/rel-migrate": {"owner"},
        "Deployment/rel-worker-mail": {"worker"},
        "Pod/rel-test": {"worker"},
        "Deployment/rel-exporter": {"operator"},
        "CronJob/rel-purge": {"operator"},
        "CronJob/rel-redrive": {"operator"},
        "CronJob/rel-redrive-template": {"operator"},
    }


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
    pod = everything.get("Deployment", "everything-worker-plain")["spec"]["template"]["spec"]
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
        mounts = {
            m["name"]: m["mountPath"]
            for m in container(everything, "Deployment", name)["volumeMounts"]
        }
        assert (secret["secretName"], item["key"]) == ("keyring", "ring.txt")
        assert environment(everything, "Deployment", name)["REDRIVE_ENCRYPTION_KEYS_FILE"] == (
            f"{mounts['encryption']}/{item['path']}"
        )
    assert "ENCRYPTION" not in render(with_pool()).text


def test_a_pod_may_wait_for_the_schema_as_long_as_it_does(everything: Release) -> None:
    for name in ("everything-exporter", "everything-worker-plain"):
        probe = container(everything, "Deployment", name)["startupProbe"]
        wait = int(environment(everything, "Deployment", name)["REDRIVE_STARTUP_TIMEOUT"] or 0)
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
        "*": {"dlq_oldest_age_seconds": 2592000},
    }
    assert "Job/rel-objectives" not in render({"database": LOGINS, "queues": {"mail": {}}}).names()


def test_retention_is_put_into_the_database_after_each_install_and_upgrade(
    everything: Release, render: Render
) -> None:
    job = everything.get("Job", "everything-retention")
    command = container(everything, "Job", "everything-retention")["args"]

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade"
    assert command[:4] == ["retention", "set", "audit=800d", "keys=14d"]
    assert "Job/rel-retention" not in render({"database": LOGINS}).names()


def test_the_automatic_redrive_says_what_by_environment(everything: Release) -> None:
    assert settings(everything, "CronJob", "everything-redrive", "REDRIVE_REDRIVE_") == {
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


def test_the_template_for_ad_hoc_redrives_never_runs_and_does_nothing_unless_told(
    everything: Release,
) -> None:
    template = everything.get("CronJob", "everything-redrive-template")["spec"]
    found = settings(everything, "CronJob", "everything-redrive-template", "REDRIVE_REDRIVE_")

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

    assert (found["REDRIVE_PURGE_EVERY"], found["REDRIVE_REDRIVE_EVERY"]) == (said, "never")
    if purge.get("enabled", True):
        told = environment(release, "CronJob", "rel-purge").get("REDRIVE_PURGE_EVERY", "never")
        assert told == said


@pytest.mark.parametrize(
    "name", ["everything-redrive", "everything-redrive-template", "everything-purge"]
)
def test_a_cron_job_acts_in_the_name_of_its_job(everything: Release, name: str) -> None:
    actor = next(
        e for e in container(everything, "CronJob", name)["env"] if e["name"] == "REDRIVE_ACTOR"
    )

    assert actor["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['job-name']"


def test_selectors_find_the_pods_of_their_own_component_only(everything: Release) -> None:
    labels = {
        o["metadata"]["name"]: o["spec"]["template"]["metadata"]["labels"]
        for o in everything.objects
        if o["kind"] == "Deployment"
    }
    for o in everything.objects:
        selector = o.get("spec", {}).get("selector") or {}
        wanted = selector.get("matchLabels", selector if o["kind"] == "Service" else None)
        if not wanted or o["kind"] in {"PodMonitor", "ServiceMonitor"}:
            continue
        matching = {name for name, found in labels.items() if wanted.items() <= found.items()}
        assert matching == {o["metadata"]["name"]}, o["kind"]


def test_labels_of_values_never_replace_those_of_a_selector(render: Render) -> None:
    values = with_pool(podLabels={"app.kubernetes.io/name": "mine", "team": "a"})
    values["pods"] = {"labels": {"redrive/pool": "x"}}
    template = render(values).get("Deployment", "rel-worker-mail")["spec"]["template"]
    labels = template["metadata"]["labels"]

    assert labels["app.kubernetes.io/name"] == "redrive"
    assert labels["redrive/pool"] == "mail"
    assert labels["team"] == "a"


def test_workers_and_exporter_are_one_job_to_prometheus(render: Render) -> None:
    release = render(with_pool() | {"monitoring": {"podMonitor": {"enabled": True}}})

    monitor = release.get("PodMonitor", "rel")["spec"]
    assert monitor["jobLabel"] == "app.kubernetes.io/name"
    assert monitor["selector"]["matchExpressions"][0]["values"] == ["worker", "exporter"]
    for name in ("rel-worker-mail", "rel-exporter"):
        labels = release.get("Deployment", name)["spec"]["template"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "redrive"


def test_pods_are_replaced_when_their_secret_changes(render: Render) -> None:
    def checksum(url: str) -> str:
        values = with_pool() | {"database": LOGINS | {"worker": {"url": url}}}
        template = render(values).get("Deployment", "rel-worker-mail")["spec"]["template"]
        return template["metadata"]["annotations"]["checksum/config"]

    assert checksum("postgresql://a@b/c") != checksum("postgresql://a@b/d")


def test_the_rules_are_installed_as_they_are_tested(everything: Release) -> None:
    for path in (CHART / "files" / "alerts").glob("*.yaml"):
        name = "everything-" + path.stem.removeprefix("redrive.").replace(".", "-")
        assert everything.get("PrometheusRule", name)["spec"] == yaml.safe_load(path.read_text())


def test_an_alert_can_be_left_out_and_links_can_lead_to_ones_own_runbook(render: Render) -> None:
    rule = {
        "enabled": True,
        "disabledAlerts": ["RedriveMetricsAbsent"],
        "runbookUrl": "https://wiki.example/redrive",
        "grafanaUrl": "https://graphs.example/",
        "consoleUrl": "https://shop.example/dead",
    }
    release = render({"database": LOGINS, "monitoring": {"prometheusRule": rule}})

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
    assert page["console_url"].startswith("https://shop.example/dead/?queue=")
    links = {
        link for notes in alerts.values() for name, link in notes.items() if name.endswith("_url")
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


def test_dashboards_are_installed_as_they_are(render: Render, with_dashboard: Path) -> None:
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
        {"database": LOGINS, "cronJobs": {"ttlSecondsAfterFinished": 1209600}, "redrive": redrive}
    )

    job = release.get("CronJob", "rel-redrive")["spec"]["jobTemplate"]["spec"]
    numbers = [job["ttlSecondsAfterFinished"], job["activeDeadlineSeconds"]]
    assert json.dumps(numbers) == "[1209600, 2000000]"
    assert environment(release, "CronJob", "rel-redrive")["REDRIVE_REDRIVE_LIMIT"] == "1000000"
