"""A Postgres that speaks TLS, a migration before the release, and an authority that is the right
one or not.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import certificate
from trials.cluster.kubernetes import HELMS, Release, eventually, in_namespace, unique

pytestmark = pytest.mark.slow

IMAGE = os.environ.get(
    "CLUSTER_POSTGRES_IMAGE", "docker.io/library/postgres:17-bookworm"
)
URL = "postgresql://postgres:of-this-test@db:5432/redrive"
POSTGRES = """
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {selector: {app: db}, ports: [{port: 5432}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: db}
spec:
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      securityContext:
        {runAsNonRoot: true, runAsUser: 999, fsGroup: 999, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: db
          image: IMAGE
          imagePullPolicy: IfNotPresent
          args:
            [postgres, -c, ssl=on, -c, ssl_cert_file=/tls/tls.crt, -c, ssl_key_file=/tls/tls.key]
          env:
            - {name: POSTGRES_PASSWORD, value: of-this-test}
            - {name: POSTGRES_DB, value: redrive}
            - {name: PGDATA, value: /data/postgres}
          readinessProbe: {tcpSocket: {port: 5432}, periodSeconds: 1}
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
          volumeMounts: [{name: data, mountPath: /data}, {name: tls, mountPath: /tls}]
      volumes:
        - {name: data, emptyDir: {}}
        - {name: tls, secret: {secretName: db-tls, defaultMode: 0440}}
"""


@pytest.fixture
def release(images: tuple[str, str], tmp_path: Path) -> Iterator[Release]:
    """A namespace with such a Postgres and two authorities; nothing of ours is installed yet."""
    repository, _, tag = images[0].rpartition(":")
    values = [
        f"image.repository={repository}",
        f"image.tag={tag}",
        "migrations.backoffLimit=0",
        "database.tls.mode=verify-full",
    ]
    values += [
        f"database.{login}.url={URL}" for login in ("owner", "worker", "operator")
    ]
    authorities = {name: certificate(tmp_path, name) for name in ("ours", "theirs")}
    server = certificate(tmp_path, "db", names="DNS:db", signer=authorities["ours"])
    release = Release(
        HELMS[0], unique("tls"), [part for value in values for part in ("--set", value)]
    )
    with in_namespace(release):
        for name, file in authorities.items():
            release.kubectl("create", "configmap", name, f"--from-file=ca.crt={file}")
        release.kubectl(
            "create",
            "secret",
            "tls",
            "db-tls",
            f"--cert={server}",
            f"--key={server.with_suffix('.key')}",
        )
        release.kubectl(
            "apply", "--filename", "-", stdin=POSTGRES.replace("IMAGE", IMAGE)
        )
        release.kubectl(
            "rollout", "status", "deploy/db", "--timeout", "300s", seconds=320
        )
        # A migration that may fail only once finds the name and the way to it.
        reachable = "until pg_isready --host db; do sleep 1; done"
        release.kubectl("exec", "deploy/db", "--", "sh", "-c", reachable)
        yield release


def trusting(authority: str) -> tuple[str, str]:
    return "--set", f"database.tls.caConfigMap.name={authority}"


def test_a_database_is_trusted_by_its_authority_only(release: Release) -> None:
    release.install(*trusting("ours"))

    release.test()
    psql = (
        "exec",
        "deploy/db",
        "--",
        "psql",
        URL.replace("@db", "@127.0.0.1"),
        "-qAtc",
    )
    encrypted = (
        "select distinct ssl from pg_stat_ssl join pg_stat_activity using (pid)"
        " where application_name ~ '^redrive'"
    )
    said = eventually(
        "somebody is connected", lambda: release.kubectl(*psql, encrypted)
    )
    assert said.split() == ["t"]

    with pytest.raises(AssertionError, match="pre-upgrade hooks failed"):
        release.upgrade(*trusting("theirs"))

    assert "SSL error: certificate verify failed" in release.kubectl(
        "logs", f"job/{release.name}-migrate"
    )
    release.redrive("queue", "ls")  # what was there goes on
    with pytest.raises(AssertionError, match="SSL error: certificate verify failed"):
        release.test()
    eventually("its pod is gone", lambda: release.pods("test") == [])
