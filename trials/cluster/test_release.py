"""A release from install to uninstall, by each Helm, told in the order of its life."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from trials.cluster.kubernetes import (
    CHART,
    CONSOLE_TOKEN,
    ROOT,
    Release,
    eventually,
    run,
)

DOCS = ROOT / "docs" / "kubernetes.md"
COMPONENTS = {"worker", "exporter", "console", "migrate", "postgres"}
REDRIVE_NOW = (
    'kubectl create job "$JOB" --namespace "$NAMESPACE" --from="cronjob/$RELEASE-redrive-template"'
    " --dry-run=client -o yaml"
    ' | kubectl set env --local -f - -o yaml REDRIVE_REDRIVE_KIND="$KIND" $MORE'
    " | kubectl create -f -"
)
"""As NOTES.txt and docs/kubernetes.md say it."""


def redrive_now(release: Release, job: str, kind: str, more: str = "") -> str:
    """Make an ad-hoc Job of the template by kubectl; what it printed."""
    told = {
        "JOB": job,
        "NAMESPACE": release.namespace,
        "RELEASE": release.name,
        "KIND": kind,
        "MORE": more,
    }
    run(
        "env",
        *(f"{name}={value}" for name, value in told.items()),
        "bash",
        "-o",
        "pipefail",
        "-ec",
        REDRIVE_NOW,
    )
    return release.job_log(job)


def added(text: str, kind: str) -> float:
    """What /metrics says was dead-lettered of a kind."""
    pattern = (
        rf'^redrive_dlq_added_total\{{[^}}]*kind="{re.escape(kind)}"[^}}]*\}} (\S+)$'
    )
    return sum(map(float, re.findall(pattern, text, re.MULTILINE)))


def objective(text: str, name: str) -> float:
    found = re.search(
        rf'^redrive_queue_objective\{{[^}}]*objective="{name}"[^}}]*\}} (\S+)$',
        text,
        re.MULTILINE,
    )
    assert found, f"no objective {name} in\n{text}"
    return float(found[1])


def test_a_namespace_that_enforces_restricted_accepts_every_pod(
    release: Release,
) -> None:
    ran = {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]
        for pod in release.get("pods")
    }
    events = [event.get("message", "") for event in release.get("events")]
    refused = [message for message in events if "violates PodSecurity" in message]

    assert ran >= COMPONENTS
    assert refused == []


def test_the_image_holds_what_redrive_needs_and_no_more(
    images: tuple[str, str],
) -> None:
    """It added 157 MB, and 58 MB of them were never used."""
    code = "import importlib.util as u; print([n for n in ('pip', 'setuptools', 'botocore') if u.find_spec(n)])"
    run_in = ("docker", "run", "--rm", "--network", "host")
    found = run(*run_in, "--entrypoint", "python3", images[0], "-c", code)

    assert found == "[]\n"
    if base := os.environ.get("CLUSTER_PYTHON_IMAGE"):
        sizes = run("docker", "image", "inspect", "-f", "{{.Size}}", images[0], base)
        ours, theirs = map(int, sizes.split())
        assert ours - theirs < 90e6


def test_no_pod_has_a_token_or_rights(release: Release) -> None:
    for pod in release.get("pods"):
        assert pod["spec"]["automountServiceAccountToken"] is False
    assert release.get("roles,rolebindings") == []


def test_the_install_waited_for_its_migration_without_a_restart(
    release: Release,
) -> None:
    restarts = release.restarts()

    assert len(restarts) == 5
    assert set(restarts.values()) == {0}, restarts


def test_objectives_of_the_values_are_in_the_database(release: Release) -> None:
    lines = [
        json.loads(line)
        for line in release.redrive("objective", "ls", "--json").splitlines()
    ]

    wanted = {"queue": "*", "kind": None, "objective": "ready_age_seconds"}
    assert wanted | {"value": 120.0} in lines
    # Alone of its action: a purge that fell due since the install may have a line of its own.
    assert release.sql(
        "select actor, why from redrive.audit where action = 'objective'"
    ) == [["shop-objectives", "values of the chart"]]


def test_helm_test_succeeds_and_leaves_nothing(release: Release) -> None:
    release.test()

    eventually("its pod is gone", lambda: release.pods("test") == [])


def test_jobs_run(release: Release) -> None:
    jobs = release.enqueue("shop.work", count=200)

    ends = release.wait_for_ends(jobs)

    assert [(attempt, deliveries) for _, attempt, deliveries in ends] == [(1, 1)] * 200


def test_handlers_of_a_derived_image_run(release: Release) -> None:
    jobs = release.enqueue("shop.work", count=5, queue="hungry")

    assert len(release.wait_for_ends(jobs)) == 5


def test_the_exporter_s_pod_is_a_place_to_look_from(release: Release) -> None:
    depths = [
        json.loads(line)
        for line in release.redrive("queue", "ls", "--json").splitlines()
    ]

    assert {"default", "hungry"} <= {depth["queue"] for depth in depths}


def test_poison_becomes_dead_letters_that_fire_the_alert(
    release: Release, tmp_path: Path
) -> None:
    release.enqueue("shop.work", count=1)
    known = re.compile(r'^redrive_dlq_added_total\{.*queue="default"', re.MULTILINE)
    before = eventually(
        "the exporter knows the queue",
        lambda: known.search(text := release.metrics()) and text,
    )
    release.enqueue("shop.poison", count=30)
    dead = eventually(
        "30 dead letters",
        lambda: (
            len(found := release.dead_letters("--kind", "shop.poison")) == 30 and found
        ),
    )
    after = eventually(
        "the exporter counts them",
        lambda: added(text := release.metrics(), "shop.poison") >= 30 and text,
    )

    assert {letter["error_class"].rpartition(".")[2] for letter in dead} == {
        "TypeError"
    }
    assert "price is None" in release.redrive("dlq", "ls")
    grown = added(after, "shop.poison") - added(before, "shop.poison")
    assert grown == 30 > objective(after, "dlq_added_5m")
    if shutil.which("promtool"):
        fire_with_promtool(before, after, tmp_path)


def fire_with_promtool(before: str, after: str, where: Path) -> None:
    """Give the shipped rules what the exporter said before and after, and see the alert fire."""
    sample = re.compile(
        r"^(redrive_(?:dlq_added_total|queue_objective|queue_depth)\{.*\}) (\S+)$",
        re.MULTILINE,
    )
    earlier = dict(sample.findall(before))
    series = [
        {
            "series": name.replace("{", '{namespace="n",job="redrive",', 1),
            "values": f"{earlier[name]}x10 {value}x10"
            if name in earlier
            else f"_x10 {value}x10",
        }
        for name, value in sample.findall(after)
    ]
    fires = (
        'count(ALERTS{alertname="RedriveDeadLettersGrowingFast",alertstate="firing",'
        'queue="default"})'
    )
    case = {
        "interval": "30s",
        "input_series": series,
        "promql_expr_test": [
            {"expr": fires, "eval_time": "4m", "exp_samples": []},
            {
                "expr": fires,
                "eval_time": "8m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            },
        ],
    }
    rules = CHART / "files" / "alerts" / "redrive.rules.yaml"
    file = where / "alert.test.yaml"
    file.write_text(
        yaml.safe_dump(
            {"rule_files": [str(rules)], "evaluation_interval": "30s", "tests": [case]}
        )
    )
    run("promtool", "test", "rules", str(file))


def test_an_ad_hoc_redrive_job_only_prints_the_plan_unless_told(
    release: Release,
) -> None:
    text = redrive_now(release, "redrive-look", "shop.poison")

    assert "30 open dead letters" in text
    assert "nothing was changed" in text
    assert len(release.dead_letters("--kind", "shop.poison")) == 30


def test_kubectl_run_of_the_image_only_prints_the_plan_unless_told(
    release: Release, images: tuple[str, str]
) -> None:
    """It waited ten minutes for the success of a pod that had failed."""
    documented = re.findall(
        r"^kubectl run .*?(?=^```)", DOCS.read_text(), re.MULTILINE | re.DOTALL
    )
    [command] = [text for text in documented if "dlq redrive" in text]
    for written, here in {
        "kubectl ": f"kubectl --namespace {release.namespace} ",
        "redrive:0.2.0": images[0],
        "redrive-operator": f"{release.name}-database-operator",
    }.items():
        assert written in command
        command = command.replace(written, here)

    for filters in ("--kind shop.poison", "--all"):
        text = run("bash", "-ec", command.replace("--queue mail", filters), seconds=300)
        assert "30 open dead letters" in text
        assert "nothing was changed" in text
    assert len(release.dead_letters("--kind", "shop.poison")) == 30


def test_an_ad_hoc_redrive_job_puts_dead_letters_back_to_work(release: Release) -> None:
    release.sql("insert into fixed values ('shop.poison')")
    dead = [letter["id"] for letter in release.dead_letters("--kind", "shop.poison")]

    text = redrive_now(
        release,
        "redrive-now",
        "shop.poison",
        "REDRIVE_REDRIVE_YES=true REDRIVE_REDRIVE_WHY=fixed REDRIVE_REDRIVE_RATE=50",
    )

    assert "30 dead letters redriven" in text
    ends = release.wait_for_ends(dead)
    assert len(ends) == 30
    assert release.dead_letters("--kind", "shop.poison") == []
    assert ["redrive-now", "fixed"] in release.sql(
        "select actor, why from redrive.audit"
    )


@contextmanager
def forwarded(release: Release, what: str) -> Iterator[str]:
    """A port of this machine that leads to a Service, as somebody who looks forwards it."""
    with subprocess.Popen(
        ("kubectl", "--namespace", release.namespace, "port-forward", what, ":80"),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found
            yield f"http://localhost:{found[1]}"
        finally:
            process.kill()


@pytest.mark.skipif(
    not shutil.which("chromium"), reason="no chromium: apt-get install chromium"
)
def test_a_redrive_by_clicking_in_the_console(release: Release) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    release.sql("delete from fixed where kind = 'shop.poison'")
    dead = release.enqueue("shop.poison", count=3)
    eventually(
        "3 dead letters",
        lambda: len(release.dead_letters("--kind", "shop.poison")) == len(dead),
    )
    release.sql("insert into fixed values ('shop.poison')")

    service = f"service/{release.name}-console"
    with forwarded(release, service) as address, playwright.sync_playwright() as run:
        browser = run.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox"],
            timeout=120_000,
        )
        page = browser.new_context(base_url=address).new_page()
        page.set_default_timeout(120_000)
        page.goto("/groups")
        page.get_by_label("Your token").fill(CONSOLE_TOKEN)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name=re.compile("shop.poison")).first.click()
        page.get_by_role("link", name="Redrive 3…").click()
        page.get_by_label("Why").fill("clicked")
        page.get_by_role("button", name="Redrive 3 open dead letters").click()
        said = page.get_by_role("status").inner_text()
        browser.close()

    assert said.startswith("3 dead letters redriven by campaign")
    assert len(release.wait_for_ends(dead)) == 3
    assert ["token:ada", "clicked"] in release.sql(
        "select actor, why from redrive.audit"
    )


@pytest.mark.slow
def test_the_cron_jobs_purge_and_redrive_by_themselves(release: Release) -> None:
    jobs = release.enqueue("shop.automatic", count=2)
    release.sql("delete from fixed where kind = 'shop.poison'")
    [unwanted] = release.enqueue("shop.poison")
    eventually("it is dead", lambda: release.dead_letters("--id", str(unwanted)))
    release.redrive(
        "dlq", "dismiss", str(unwanted), "--why", "nobody wants it", "--actor", "tests"
    )

    # A run that the database was not up for yet may have failed; the next one comes in a minute.
    release.wait_for_ends(jobs)
    eventually(
        "what was dismissed is purged",
        lambda: (
            not release.sql(
                f"select id from redrive.dead_letters where id = {unwanted}"
            )
        ),
        seconds=300,
    )


@pytest.mark.slow
def test_an_upgrade_under_load_loses_nothing_and_burns_no_attempt(
    release: Release,
) -> None:
    old = set(release.workers())
    # Four that outlast the drain: given back, and not charged for it.
    held = release.enqueue("shop.held", 4)
    eventually("they run", lambda: len(release.ledger(held, "start")) == 4)
    jobs = held + release.enqueue("shop.work", 200, '{"seconds": 0.4}')

    release.upgrade("--set", "workers.main.podAnnotations.round=second")
    jobs += release.enqueue("shop.work", 50)

    ends = release.wait_for_ends(jobs)
    eventually("the old workers are gone", lambda: old.isdisjoint(release.workers()))
    assert [row for row in ends if row[0] in held and row[2] == 1] == [], (
        "not given back"
    )
    assert [row for row in ends if row[1] != 1] == [], "an attempt was burned"
    assert sorted(row[0] for row in ends) == sorted(jobs), "lost, or ended twice"
    assert release.dead_letters() == []


def test_network_policies_are_accepted(release: Release) -> None:
    """The cluster's network decides whether they are enforced; all tests here run with them."""
    names = {policy["metadata"]["name"] for policy in release.get("networkpolicies")}

    assert names == {
        release.name,
        f"{release.name}-console",
        f"{release.name}-metrics",
        f"{release.name}-test",
        f"{release.name}-worker",
        f"{release.name}-postgres",
    }


def test_uninstall_leaves_nothing(release: Release) -> None:
    release.run_helm("uninstall", release.name, "--wait", "--timeout", "5m")

    eventually(
        "everything of the release is gone", lambda: left(release) == [], every=3
    )


def left(release: Release) -> list[str]:
    """Everything in the namespace but what was there before and what the cluster puts there."""
    kinds = run(
        "kubectl",
        "api-resources",
        "--namespaced",
        "--verbs",
        "list",
        "--output",
        "name",
    ).split()
    of_the_cluster = {"events", "events.events.k8s.io", "pods.metrics.k8s.io"}
    text = release.kubectl(
        "get",
        ",".join(kind for kind in kinds if kind not in of_the_cluster),
        "--output",
        "name",
        "--ignore-not-found",
    )
    theirs = {"configmap/kube-root-ca.crt", "serviceaccount/default", "configmap/shop"}
    theirs.add("secret/console")
    return [name for name in text.split() if name not in theirs]
