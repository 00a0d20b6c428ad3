"""Get the peers from their registries into a directory of the harness, once. What cannot be had is
skipped, and why.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from bench.systems import System

DRIVERS = Path(__file__).parent / "drivers"
INSTALL_SECONDS = 900  # a first cargo build on two busy cores takes five minutes


class Peers:
    """Installed peers: how to call each, and why others are missing."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.missing: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self._python = home / "venv" / "bin" / "python"
        self._node = home / "node"
        self._rust = home / "rust"

    def command(self, system: System) -> list[str]:
        """What starts the driver of a system."""
        if system.made_of == "ours":
            return [sys.executable, str(DRIVERS / system.driver)]
        if system.made_of == "python":
            return [str(self._python), str(DRIVERS / system.driver)]
        if system.made_of == "node":
            # Node finds packages beside the file that asks for them.
            return ["node", str(self._node / system.driver)]
        if system.made_of == "rust":
            return [str(self._rust / "release" / "awabench")]
        return [str(self.home / "go" / "riverbench")]

    def install(self, systems: list[System]) -> list[System]:
        """Install what these need. Returns those that can run."""
        ready: list[System] = []
        for system in systems:
            why_not = self._try(system)
            if why_not is None:
                ready.append(system)
            else:
                self.missing[system.name] = why_not
                print(f"skipped {system.name}: {why_not}", file=sys.stderr)
        return ready

    def _try(self, system: System) -> str | None:
        """Install one. Returns why it cannot be had, or None."""
        if system.needs and system.needs not in os.environ:
            return f"{system.needs} is not set"
        try:
            self._install(system)
            self.versions[system.name] = self._version(system)
        except (OSError, subprocess.SubprocessError) as error:
            output = (getattr(error, "stderr", None) or str(error)).strip()
            return output.splitlines()[-1][:200] if output else repr(error)
        return None

    def _install(self, system: System) -> None:
        if system.made_of == "python":
            if not self._python.exists():
                _call(sys.executable, "-m", "venv", self.home / "venv")
            _call(
                self._python,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                *system.packages,
            )
        elif system.made_of == "node":
            self._node.mkdir(parents=True, exist_ok=True)
            for file in DRIVERS.glob("*.mjs"):
                shutil.copy(file, self._node)
            _call(
                "npm",
                "install",
                "--silent",
                "--no-audit",
                "--no-fund",
                *system.packages,
                cwd=self._node,
            )
        elif system.made_of == "go":
            source = DRIVERS / system.driver
            _call("go", "build", "-o", self.home / "go" / "riverbench", ".", cwd=source)
        elif system.made_of == "rust":
            source = shutil.copytree(
                DRIVERS / system.driver, self._rust / "source", dirs_exist_ok=True
            )
            _call(
                "cargo",
                "build",
                "--quiet",
                "--release",
                "--target-dir",
                self._rust,
                cwd=source,
            )

    def _version(self, system: System) -> str:
        if system.made_of == "python":
            name = system.packages[0].partition("[")[0]
            script = f"from importlib.metadata import version; print(version({name!r}))"
            return _call(self._python, "-c", script).strip()
        if system.made_of == "node":
            return system.packages[0].rpartition("@")[2]
        if system.made_of == "go":
            lines = (DRIVERS / system.driver / "go.mod").read_text().splitlines()
            return next(
                line.split()[-1]
                for line in lines
                if line.strip().startswith("github.com/riverqueue/river ")
            )
        if system.made_of == "rust":
            manifest = tomllib.loads(
                (DRIVERS / system.driver / "Cargo.toml").read_text()
            )
            return str(manifest["dependencies"][system.driver]).lstrip("=")
        return "this checkout"


def _call(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
        timeout=INSTALL_SECONDS,
        env=os.environ | {"CGO_ENABLED": "0"},
    )
    return done.stdout
