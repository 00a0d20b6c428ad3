"""Timers: redrives, reports, and in whose name they act."""

import pytest

from redrive.cli.support.exits import Exit
from tests.chart.helm import Release
from tests.chart.rendered import container, settings


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
    """Each of its three tries started a campaign, and more jobs died again."""
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


def test_a_report_is_sent_on_a_schedule_with_its_secret_as_a_file(
    everything: Release,
) -> None:
    """Nothing came by itself before a review."""
    job = container(everything, "CronJob", "everything-report")
    (mount,) = [m for m in job["volumeMounts"] if m["name"] == "files"]
    spec = everything.get("CronJob", "everything-report")["spec"]
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    (volume,) = [v for v in pod["volumes"] if v["name"] == "files"]

    assert job["args"] == ["dlq", "report", "--since", "7d", "--post"]
    assert settings(everything, "CronJob", "everything-report", "REDRIVE_REPORT_") == {
        "REDRIVE_REPORT_WEBHOOK_URL_FILE": "/etc/redrive/report/webhook"
    }
    assert mount["mountPath"] == "/etc/redrive/report"
    assert [
        (s["secret"]["name"], s["secret"]["items"])
        for s in volume["projected"]["sources"]
    ] == [("slack", [{"key": "url", "path": "webhook"}])]
    policy = everything.get("NetworkPolicy", "everything-report")["spec"]
    assert [p["port"] for p in policy["egress"][0]["ports"]] == [443]


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
