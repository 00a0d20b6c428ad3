"""kubectl and helm as people type them."""

import hashlib
import json
import os
import secrets
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "redrive"
HERE = Path(__file__).parent
HELMS = shlex.split(os.environ.get("HELM", "helm"))


def run(
    *command: str,
    stdin: str | None = None,
    seconds: float = 120,
    stderr: int = subprocess.PIPE,
) -> str:
    """Run a command to its end; what it printed. A failure shows all of it."""
    done = subprocess.run(
        command,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, (
        f"{' '.join(command)}\nended with {done.returncode}\n"
        f"{done.stdout[-4000:]}\n{(done.stderr or '')[-4000:]}"
    )
    return done.stdout


def eventually(
    what: str, condition: Callable[[], Any], seconds: float = 180, every: float = 1
) -> Any:
    """Wait until `condition` returns something true, and return it.

    As long as a slow and busy machine may need: only what fails takes that long.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, (
            f"not within {seconds} s: {what}; at last: {value!r}"
        )
        time.sleep(every)
    return value


JOB_NAME = "batch.kubernetes.io/job-name"
"""Label of the pods of a Job."""

CONSOLE_TOKEN = secrets.token_hex(16)
"""Of ada, an operator."""


@dataclass
class Release:
    """The chart, installed in a namespace of its own by one version of Helm."""

    helm: str
    namespace: str
    settings: list[str] = field(default_factory=list)
    """Options of helm install and helm upgrade."""
    name: str = "shop"

    # ------------------------------------------------------------------ the tools

    def run_helm(self, *arguments: str, seconds: float = 660) -> str:
        return run(
            self.helm, *arguments, "--namespace", self.namespace, seconds=seconds
        )

    def install(self, *settings: str) -> str:
        return self._apply("install", *settings)

    def upgrade(self, *settings: str) -> str:
        return self._apply("upgrade", *settings)

    def _apply(self, verb: str, *settings: str) -> str:
        waiting = ("--wait", "--timeout", "10m")
        try:
            return self.run_helm(
                verb, self.name, str(CHART), *self.settings, *settings, *waiting
            )
        except AssertionError as error:
            # Helm says that something did not start, and not why.
            raise AssertionError("\n".join((*failures(self), str(error)))) from None

    def test(self) -> str:
        """Run helm test; what it and its pods printed. Helm hands logs on to stderr."""
        return run(
            self.helm,
            "test",
            self.name,
            "--namespace",
            self.namespace,
            seconds=420,
            stderr=subprocess.STDOUT,
        )

    def kubectl(
        self, *arguments: str, stdin: str | None = None, seconds: float = 120
    ) -> str:
        return run(
            "kubectl",
            "--namespace",
            self.namespace,
            *arguments,
            stdin=stdin,
            seconds=seconds,
        )

    def get(self, what: str, *arguments: str) -> list[dict[str, Any]]:
        return json.loads(self.kubectl("get", what, *arguments, "--output", "json"))[
            "items"
        ]

    def pods(self, component: str, *arguments: str) -> list[dict[str, Any]]:
        selector = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component={component}"
        return self.get("pods", "--selector", selector, *arguments)

    def staying(self, component: str) -> list[dict[str, Any]]:
        """The pods that nobody has asked to go."""
        return [
            pod
            for pod in self.pods(component)
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def workers(self, pool: str = "main") -> list[str]:
        """Names of the pool's pods that are ready and are to stay."""
        return [
            pod["metadata"]["name"]
            for pod in self.staying("worker")
            if pod["metadata"]["labels"]["redrive/pool"] == pool
            and all(
                status["ready"]
                for status in pod["status"].get("containerStatuses", [{"ready": False}])
            )
        ]

    def restarts(self) -> dict[str, int]:
        """How often each container of workers and exporter was restarted."""
        return {
            f"{pod['metadata']['name']}/{status['name']}": status["restartCount"]
            for component in ("worker", "exporter")
            for pod in self.staying(component)
            for status in pod["status"].get("containerStatuses", [])
        }

    # ------------------------------------------------------------------ redrive inside

    def redrive(self, *arguments: str) -> str:
        """Run a command where the documentation says to: in the exporter's pod."""
        return self.kubectl(
            "exec", f"deploy/{self.name}-exporter", "--", "redrive", *arguments
        )

    def dead_letters(self, *filters: str) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for line in self.redrive("dlq", "ls", "--json", *filters).splitlines()
        ]

    def metrics(self) -> str:
        code = (
            "from urllib.request import urlopen;"
            " print(urlopen('http://127.0.0.1:9808/metrics', timeout=10).read().decode())"
        )
        return self.kubectl(
            "exec", f"deploy/{self.name}-exporter", "--", "python3", "-c", code
        )

    def job_log(self, job: str) -> str:
        """Wait for a Job to succeed; what the pod printed that did, which need not be its first."""
        ended = eventually(f"job {job} ends", lambda: self._ended(job))
        pods = ("--selector", f"{JOB_NAME}={job}")
        assert ended == "Complete", self.kubectl(
            "logs", *pods, "--prefix", "--tail", "-1"
        )
        [pod] = self.get("pods", *pods, "--field-selector", "status.phase=Succeeded")
        return self.kubectl("logs", pod["metadata"]["name"])

    def _ended(self, job: str) -> str | None:
        conditions = json.loads(self.kubectl("get", "job", job, "--output", "json"))[
            "status"
        ].get("conditions", [])
        ends = [
            c["type"]
            for c in conditions
            if c["status"] == "True" and c["type"] in {"Complete", "Failed"}
        ]
        return ends[0] if ends else None

    # ------------------------------------------------------------------ the database beside

    def sql(self, statements: str) -> list[list[str]]:
        """Run SQL as the owner of the trial database; rows as text."""
        url = "postgresql://redrive_trial_owner:throw-away@127.0.0.1:5432/redrive"
        command = ("exec", "--stdin", f"deploy/{self.name}-postgres", "--")
        options = (
            "--quiet",
            "--no-psqlrc",
            "--no-align",
            "--tuples-only",
            "--set",
            "ON_ERROR_STOP=1",
        )
        text = self.kubectl(*command, "psql", url, *options, stdin=statements)
        return [line.split("|") for line in text.splitlines()]

    def enqueue(
        self, kind: str, count: int = 1, payload: str = "{}", queue: str = "default"
    ) -> list[int]:
        """Enqueue as a producer in SQL does."""
        rows = self.sql(
            f"select redrive.enqueue('{kind}', '{payload}', queue => '{queue}')"
            f" from generate_series(1, {count})"
        )
        return [int(row[0]) for row in rows]

    def ledger(self, jobs: list[int], phase: str = "end") -> list[list[int]]:
        """What handlers wrote: job, attempt, deliveries."""
        rows = self.sql(
            "select job, attempt, deliveries from ledger "
            f"where phase = '{phase}' and job between {min(jobs)} and {max(jobs)} order by at"
        )
        wanted = set(jobs)
        return [[int(value) for value in row] for row in rows if int(row[0]) in wanted]

    def wait_for_ends(self, jobs: list[int], seconds: float = 300) -> list[list[int]]:
        eventually(
            f"{len(jobs)} jobs end",
            lambda: {row[0] for row in self.ledger(jobs)} == set(jobs),
            seconds,
        )
        return self.ledger(jobs)


def unique(what: str) -> str:
    return f"redrive-{what}-{secrets.token_hex(4)}"


def new_namespace(name: str) -> None:
    """Make a namespace that accepts only what keeps the Pod Security standard `restricted`."""
    labels = {
        f"pod-security.kubernetes.io/{mode}{suffix}": value
        for mode in ("enforce", "warn")
        for suffix, value in (("", "restricted"), ("-version", "latest"))
    }
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    }
    run("kubectl", "create", "--filename", "-", stdin=json.dumps(namespace))


@contextmanager
def in_namespace(release: Release) -> Iterator[None]:
    """The namespace of a release, while it is needed."""
    new_namespace(release.namespace)
    try:
        yield
    except BaseException:
        print(look(release))
        raise
    finally:
        if "CLUSTER_KEEP" not in os.environ:
            # How long its pods take to go is no test's concern.
            run("kubectl", "delete", "namespace", release.namespace, "--wait=false")


@contextmanager
def installed(helm: str, namespace: str, settings: list[str]) -> Iterator[Release]:
    """A release with handlers, their ledger and everything ready; its namespace goes with it."""
    release = Release(helm, namespace, settings)
    with in_namespace(release):
        release.kubectl(
            "create", "configmap", "shop", f"--from-file=shop.py={HERE / 'handlers.py'}"
        )
        known = hashlib.sha256(CONSOLE_TOKEN.encode()).hexdigest()
        release.kubectl(
            "create",
            "secret",
            "generic",
            "console",
            f"--from-literal=tokens={known} operator ada",
            f"--from-literal=key={secrets.token_hex(32)}",
        )
        release.install()
        make_ledger(release)
        yield release


def make_ledger(release: Release) -> None:
    """Make the tables of the handlers."""
    release.sql("""
        create table ledger (
            at timestamptz default clock_timestamp(), phase text, job bigint, kind text,
            attempt int, deliveries int, pod text);
        create table fixed (kind text);
        grant insert on ledger to redrive_worker;
        grant select on fixed to redrive_worker;
    """)


def look(release: Release) -> str:
    """Return what to read when a test failed; the pods that failed come last.

    CI shows the end of the output, so the reason stands there.
    """
    ours = f"app.kubernetes.io/instance={release.name}"
    logs = ("--prefix", "--tail", "3", "--max-log-requests", "50")
    commands = [
        ("logs", "--selector", ours, *logs),
        ("get", "events", "--field-selector", "type=Warning"),
        ("get", "pods,jobs"),
    ]
    texts = [_said(release, *command) for command in commands]
    return "\n".join((*texts, *reversed(failures(release))))


def _said(release: Release, *command: str) -> str:
    """Return a command and what it prints, or why it prints nothing."""
    try:
        said = release.kubectl(*command, seconds=60)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        said = str(error)
    return f"$ kubectl {' '.join(command)}\n{said}"


def failures(release: Release) -> list[str]:
    """Return why containers failed, and their last lines; first the containers of Jobs."""
    try:
        pods = release.get("pods")
    except (AssertionError, subprocess.TimeoutExpired):
        return []  # the commands before have said so
    pods.sort(key=lambda pod: JOB_NAME not in pod["metadata"].get("labels", {}))
    return [
        _failure(release, pod["metadata"]["name"], container, why)
        for pod in pods
        for container in containers_of(pod["status"])
        if (why := reason_of(container))
    ]


def containers_of(status: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the containers of a pod, in their order."""
    initial = status.get("initContainerStatuses", [])
    return initial + status.get("containerStatuses", [])


def _failure(release: Release, pod: str, container: dict[str, Any], why: str) -> str:
    tail = ("--container", container["name"], "--tail", "20")
    is_again = container["restartCount"] and "running" not in container["state"]
    before = ("--previous",) if is_again else ()
    said = _said(release, "logs", pod, *tail, *before)
    return f"pod {pod}, container {container['name']}: {why}\n{said}"


def reason_of(container: dict[str, Any]) -> str | None:
    """Return why a container does not run; None if it runs or has ended well."""
    states = (container.get("state", {}), container.get("lastState", {}))
    for state in states:
        ended = state.get("terminated", {})
        if ended.get("exitCode"):
            said = ended.get("message", "").strip()
            return f"{ended['reason']}, exit code {ended['exitCode']} {said}".rstrip()
    waits = states[0].get("waiting", {})
    is_starting = waits.get("reason") in {None, "ContainerCreating", "PodInitializing"}
    return None if is_starting else f"{waits['reason']} {waits.get('message', '')}"
