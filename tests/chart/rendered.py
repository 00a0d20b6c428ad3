"""What tests of the chart look for in a release, and the values that they share."""

from typing import Any

from tests.chart.helm import Release

KEDA = {
    "type": "keda",
    "keda": {"prometheus": {"serverAddress": "http://p:9090", "maxWaitSeconds": 5}},
}
LOGINS = {login: {"existingSecret": login} for login in ("owner", "worker", "operator")}


def pool(**properties: Any) -> dict[str, Any]:
    return {"workers": {"mail": {"handlers": "a:b"} | properties}}


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


def pods_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Every pod specification in an object, with or without a template around it."""
    if found["kind"] == "Pod":
        return [found["spec"]]
    spec = found.get("spec") or {}
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    return [spec["template"]["spec"]] if "template" in spec else []


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


ORDERS = {"url_file": "/etc/redrive/brokers/rabbit/url", "queue": "orders.dead"}
MAIL = {"queue_url": "https://sqs.example/1/mail-dead", "verdict_seconds": 90}
SOURCES: dict[str, Any] = {"rabbitmq": {"orders": ORDERS}, "sqs": {"mail": MAIL}}
GATEWAY = {
    "enabled": True,
    "login": {"existingSecret": "gateway-login"},
    "sources": SOURCES,
    "secrets": ["rabbit", "other.broker"],
}

LABELLED = {"action": "replace", "targetLabel": "cell", "replacement": "eu"}
