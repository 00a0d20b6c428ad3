"""Real Helm 4, in a process of its own.

Its library reads HELM_DRIVER from the environment a process was started with, and its runtime stays
out of pytest's. Run as a program, this is that process: one request per line of JSON, one answer
each.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "redrive"
HELM_IS_THERE = find_spec("helm_sdkpy") is not None


class HelmRefusedError(Exception):
    """Helm's own words."""


@dataclass(frozen=True)
class Release:
    """What Helm made of chart and values."""

    manifest: str
    hooks: list[dict[str, Any]] = field(default_factory=list)
    notes: str = ""

    @property
    def text(self) -> str:
        """All of it, in a fixed order."""
        return "\n".join(
            [
                self.manifest,
                *sorted(hook["manifest"] for hook in self.hooks),
                self.notes,
            ]
        )

    @cached_property
    def objects(self) -> list[dict[str, Any]]:
        """All objects, hooks too."""
        documents = [self.manifest, *(hook["manifest"] for hook in self.hooks)]
        return [
            found
            for document in documents
            for found in yaml.load_all(document, yaml.CSafeLoader)
            if found
        ]

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """One of them."""
        found = [
            o
            for o in self.objects
            if (o["kind"], o["metadata"]["name"]) == (kind, name)
        ]
        assert len(found) == 1, (
            f"{kind} {name} is there {len(found)} times; there are {sorted(self.names())}"
        )
        return found[0]

    def names(self, kind: str | None = None) -> set[str]:
        """Kind/name of each, or the names of one kind."""
        if kind is None:
            return {f"{o['kind']}/{o['metadata']['name']}" for o in self.objects}
        return {o["metadata"]["name"] for o in self.objects if o["kind"] == kind}


class Helm:
    """The process."""

    def __init__(self, home: Path) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KUBECACHEDIR": str(home),
            "GOGC": "800",  # it keeps little, and collecting garbage was a quarter of its work
            "HELM_DRIVER": "memory",
            "HELM_CACHE_HOME": str(home),
            "HELM_CONFIG_HOME": str(home),
            "HELM_DATA_HOME": str(home),
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def close(self) -> None:
        """End it."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(timeout=120)
        self._process.stdout.close()

    def run(self, action: str, **request: Any) -> Any:
        """Ask, and wait for the answer.

        Raises:
            HelmRefusedError: what Helm says.
        """
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"action": action} | request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise HelmRefusedError(answer["error"])
        return answer["result"]

    def release(
        self,
        action: str,
        cluster: Any,
        values: dict[str, Any],
        *,
        name: str,
        chart: Path = CHART,
    ) -> Release:
        """Install or upgrade."""
        result = self.run(
            action,
            kubeconfig=cluster.kubeconfig,
            name=name,
            chart=str(chart),
            values=values,
        )
        return Release(
            result["manifest"],
            result.get("hooks") or [],
            result["info"].get("notes", ""),
        )


def _serve() -> None:
    import asyncio

    import helm_sdkpy

    # A function is looked up at its first use, under a lock; a configuration that the garbage
    # collector ended meanwhile waited for that lock, in the same thread, for ever.
    library = helm_sdkpy._ffi.get_library()
    for name in dir(library):
        getattr(library, name)
    configurations: dict[str, Any] = {}

    async def act(request: dict[str, Any]) -> Any:
        kubeconfig = request["kubeconfig"]
        if kubeconfig not in configurations:
            configurations.clear()
            configurations[kubeconfig] = helm_sdkpy.Configuration(
                namespace="jobs", kubeconfig=kubeconfig
            )
        configuration = configurations[kubeconfig]
        match request["action"]:
            case "lint":
                return await helm_sdkpy.Lint(configuration).run(request["chart"])
            case "uninstall":
                return await helm_sdkpy.Uninstall(configuration).run(
                    request["name"], wait=False, timeout=120
                )
            case "test":
                return await helm_sdkpy.ReleaseTest(configuration).run(request["name"])
        verb = {"install": helm_sdkpy.Install, "upgrade": helm_sdkpy.Upgrade}[
            request["action"]
        ]
        return await verb(configuration).run(
            request["name"],
            request["chart"],
            values=request["values"],
            wait=False,
            timeout=120,
        )

    for line in sys.stdin:
        try:
            answer = {"result": asyncio.run(act(json.loads(line)))}
        except helm_sdkpy.HelmError as error:
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
