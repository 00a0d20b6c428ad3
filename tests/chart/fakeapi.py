"""A Kubernetes API that believes everything: enough for Helm to install, upgrade and uninstall
against.

It writes down in which order Helm does so. Jobs and Pods succeed at once.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlparse

RESOURCES = {
    "v1": {
        "ConfigMap": "configmaps",
        "PersistentVolumeClaim": "persistentvolumeclaims",
        "Pod": "pods",
        "Secret": "secrets",
        "Service": "services",
        "ServiceAccount": "serviceaccounts",
    },
    "apps/v1": {"Deployment": "deployments", "ReplicaSet": "replicasets"},
    "batch/v1": {"Job": "jobs", "CronJob": "cronjobs"},
    "policy/v1": {"PodDisruptionBudget": "poddisruptionbudgets"},
    "networking.k8s.io/v1": {
        "NetworkPolicy": "networkpolicies",
        "Ingress": "ingresses",
    },
    "gateway.networking.k8s.io/v1": {"HTTPRoute": "httproutes"},
    "autoscaling/v2": {"HorizontalPodAutoscaler": "horizontalpodautoscalers"},
    "monitoring.coreos.com/v1": {
        "PodMonitor": "podmonitors",
        "ServiceMonitor": "servicemonitors",
        "PrometheusRule": "prometheusrules",
    },
    "keda.sh/v1alpha1": {
        "ScaledObject": "scaledobjects",
        "TriggerAuthentication": "triggerauthentications",
    },
    "rbac.authorization.k8s.io/v1": {"Role": "roles", "RoleBinding": "rolebindings"},
}

SHORT_NAMES = {"deployments": ["deploy"]}
"""Those that pages use."""

Key = tuple[str, str, str, str]
"""Group and version, namespace, resource, name."""

_NUMBERS = count()


class FakeCluster:
    """What the API holds, and every change to it as (verb, kind, name)."""

    def __init__(self) -> None:
        self.number = next(_NUMBERS)
        self.objects: dict[Key, dict[str, Any]] = {}
        self.changes: list[tuple[str, str, str]] = []
        self.revision = 1
        self.port = 0
        self.lock = threading.RLock()

    @property
    def kubeconfig(self) -> str:
        """A kubeconfig that leads here, and is no other's: a port may come again."""
        return f"""\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{self.port}"}}}}]
users: [{{name: u, user: {{}}}}]
contexts: [{{name: x{self.number}, context: {{cluster: c, user: u, namespace: jobs}}}}]
current-context: x{self.number}
"""

    def save(self, verb: str, key: Key, new: dict[str, Any]) -> dict[str, Any]:
        """Store an object as the API server would return it."""
        with self.lock:
            self.revision += 1
            meta = new.setdefault("metadata", {})
            meta["resourceVersion"] = str(self.revision)
            meta.setdefault("uid", f"u{self.revision}")
            meta.setdefault("namespace", key[1])
            if key[2] == "jobs":
                new["status"] = {
                    "succeeded": 1,
                    "conditions": [{"type": "Complete", "status": "True"}],
                }
            if key[2] == "pods":
                new["status"] = {"phase": "Succeeded"}
            self.objects[key] = new
            self.changes.append((verb, new["kind"], key[3]))
            return new

    def matching(
        self, version: str, namespace: str | None, resource: str, name: str = ""
    ) -> list[dict[str, Any]]:
        """The objects of a resource, or the one of that name."""
        with self.lock:
            return [
                found
                for (v, ns, r, n), found in self.objects.items()
                if (v, r) == (version, resource)
                and namespace in {None, ns}
                and name in {"", n}
            ]


@contextmanager
def fake_cluster() -> Iterator[FakeCluster]:
    """Serve an empty one."""
    cluster = FakeCluster()
    server = _Server(
        ("127.0.0.1", 0), type("Handler", (_Handler,), {"cluster": cluster})
    )
    server.daemon_threads = True
    server.block_on_close = False
    cluster.port = server.server_address[1]
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A watch that Helm has stopped reading is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # headers and body in one packet: two of them would wait 40 ms for each other's acknowledgement
    wbufsize = 1 << 16
    cluster: FakeCluster

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # its name in the base class
        pass

    def do_GET(self) -> None:
        path = urlparse(self.path).path.rstrip("/")
        found = _discovery(path)
        if found is not None:
            self._answer(200, found)
            return
        version, namespace, resource, name, query = self._parse()
        if name:
            objects = self.cluster.matching(version, namespace, resource, name)
            self._answer(200, objects[0]) if objects else self._missing(name)
            return
        selected = query.get("fieldSelector", [""])[0].removeprefix("metadata.name=")
        if query.get("watch", ["false"])[0] in {"1", "true"}:
            self._watch(version, namespace, resource, selected, query)
            return
        self._answer(
            200,
            {
                "kind": f"{_kind(version, resource)}List",
                "apiVersion": version,
                "metadata": {"resourceVersion": str(self.cluster.revision)},
                "items": self.cluster.matching(version, namespace, resource, selected),
            },
        )

    def do_POST(self) -> None:
        version, namespace, resource, _, _ = self._parse()
        new = self._body()
        key = (version, namespace or "", resource, new["metadata"]["name"])
        if key in self.cluster.objects:
            self._answer(409, _failure("AlreadyExists", 409, "it exists"))
        else:
            self._answer(201, self.cluster.save("create", key, new))

    def do_PUT(self) -> None:
        version, namespace, resource, name, _ = self._parse()
        self._answer(
            200,
            self.cluster.save(
                "update", (version, namespace or "", resource, name), self._body()
            ),
        )

    def do_PATCH(self) -> None:
        version, namespace, resource, name, _ = self._parse()
        key = (version, namespace or "", resource, name)
        current = self.cluster.objects.get(key)
        patch = self._body()
        if current is None and "apply" not in self.headers["Content-Type"]:
            self._missing(name)
        else:
            self._answer(
                200, self.cluster.save("patch", key, _merged(current or {}, patch))
            )

    def do_DELETE(self) -> None:
        version, namespace, resource, name, _ = self._parse()
        self._body()
        with self.cluster.lock:
            gone = self.cluster.objects.pop(
                (version, namespace or "", resource, name), None
            )
            if gone is not None:
                self.cluster.changes.append(("delete", gone["kind"], name))
        self._missing(name) if gone is None else self._answer(
            200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        )

    def _parse(self) -> tuple[str, str | None, str, str, dict[str, list[str]]]:
        url = urlparse(self.path)
        parts = url.path.strip("/").split("/")
        version, rest = (
            ("v1", parts[2:])
            if parts[0] == "api"
            else ("/".join(parts[1:3]), parts[3:])
        )
        namespace = None
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        return (
            version,
            namespace,
            rest[0] if rest else "",
            rest[1] if len(rest) > 1 else "",
            parse_qs(url.query),
        )

    def _body(self) -> dict[str, Any]:
        return json.loads(
            self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}"
        )

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _missing(self, name: str) -> None:
        self._answer(
            404,
            _failure("NotFound", 404, f"{name} not found")
            | {"details": {"name": name}},
        )

    def _watch(
        self,
        version: str,
        namespace: str | None,
        resource: str,
        name: str,
        query: dict[str, list[str]],
    ) -> None:
        """Events as they happen, until nobody listens or ten seconds have passed."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        seen = int(query.get("resourceVersion", ["0"])[0] or 0)
        try:
            if query.get("sendInitialEvents") == ["true"]:
                for found in self.cluster.matching(version, namespace, resource, name):
                    self._event("ADDED", found)
                seen = self.cluster.revision
                end = {"k8s.io/initial-events-end": "true"}
                self._event(
                    "BOOKMARK",
                    {
                        "kind": _kind(version, resource),
                        "apiVersion": version,
                        "metadata": {"resourceVersion": str(seen), "annotations": end},
                    },
                )
            for _ in range(500):
                newer = [
                    found
                    for found in self.cluster.matching(
                        version, namespace, resource, name
                    )
                    if int(found["metadata"]["resourceVersion"]) > seen
                ]
                for found in sorted(
                    newer, key=lambda o: int(o["metadata"]["resourceVersion"])
                ):
                    seen = int(found["metadata"]["resourceVersion"])
                    self._event("MODIFIED", found)
                time.sleep(0.02)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass
        self.close_connection = True

    def _event(self, kind: str, found: dict[str, Any]) -> None:
        line = json.dumps({"type": kind, "object": found}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()


def _kind(version: str, resource: str) -> str:
    return next(kind for kind, name in RESOURCES[version].items() if name == resource)


def _failure(reason: str, code: int, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "code": code,
        "message": message,
    }


def _merged(under: Any, over: dict[str, Any]) -> dict[str, Any]:
    result = dict(under) if isinstance(under, dict) else {}
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = (
                _merged(result.get(key), value) if isinstance(value, dict) else value
            )
    return result


def _discovery(path: str) -> dict[str, Any] | None:
    groups = [version for version in RESOURCES if "/" in version]
    if path == "/version":
        return {
            "major": "1",
            "minor": "34",
            "gitVersion": "v1.34.2",
            "platform": "linux/amd64",
        }
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        return {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": list(map(_group, groups)),
        }
    if path == "/openapi/v3":
        roots = map(_root, RESOURCES)
        return {
            "paths": {
                r: {"serverRelativeURL": f"/openapi/v3/{r}?hash=1"} for r in roots
            }
        }
    version = (
        path.removeprefix("/openapi/v3").removeprefix("/apis/").removeprefix("/api/")
    )
    if version not in RESOURCES:
        return None
    if path.startswith("/openapi"):
        return _openapi(version)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": version,
        "resources": [
            {
                "name": name,
                "singularName": kind.lower(),
                "shortNames": SHORT_NAMES.get(name, []),
                "namespaced": True,
                "kind": kind,
                "verbs": [
                    "create",
                    "delete",
                    "get",
                    "list",
                    "patch",
                    "update",
                    "watch",
                ],
            }
            for kind, name in RESOURCES[version].items()
        ],
    }


def _group(version: str) -> dict[str, Any]:
    name, _, number = version.partition("/")
    served = {"groupVersion": version, "version": number}
    return {"name": name, "versions": [served], "preferredVersion": served}


def _openapi(version: str) -> dict[str, Any]:
    """As much of it as tells Helm that the server validates fields."""
    group, _, number = version.rpartition("/")
    asked = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    paths = {
        f"/{_root(version)}/namespaces/{{namespace}}/{name}/{{name}}": {
            "patch": {
                "responses": {},
                "parameters": [asked],
                "x-kubernetes-group-version-kind": {
                    "group": group,
                    "version": number,
                    "kind": kind,
                },
            }
        }
        for kind, name in RESOURCES[version].items()
    }
    return {
        "openapi": "3.0.0",
        "info": {"title": "k", "version": "1"},
        "components": {"schemas": {}},
        "paths": paths,
    }


def _root(version: str) -> str:
    return "api/v1" if version == "v1" else f"apis/{version}"
