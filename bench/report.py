"""What came out: a JSON file for machines, and Markdown for people."""

import json
import platform
import subprocess
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.scenarios import Figures, median
from bench.server import SETTINGS

RESULTS = Path(__file__).parent / "results"
UNITS = {
    "_us": "{:.1f}",
    "_ms": "{:.2f}",
    "_bytes": "{:.0f}",
    "_mib": "{:.0f}",
    "_kb": "{:.1f}",
    "_percent": "{:.2f}",
    "ratio": "{:.2f}",
}


def machine() -> dict[str, str]:
    """Where this ran."""
    cpuinfo, memory = (
        Path("/proc/cpuinfo").read_text(),
        Path("/proc/meminfo").read_text(),
    )
    model = next(
        (
            line.partition(":")[2].strip()
            for line in cpuinfo.splitlines()
            if line.startswith("model name")
        ),
        "?",
    )
    return {
        "cpu": model,
        "cores": str(cpuinfo.count("processor\t")),
        "memory_gib": f"{int(memory.split()[1]) / 2**20:.0f}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": Path("/proc/loadavg").read_text().split()[0],
    }


def commit() -> str:
    """Which checkout this is; `+` when it holds changes."""
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "?"


@dataclass
class Report:
    """Runs by scenario and system."""

    size: float
    machine: dict[str, str] = field(default_factory=machine)
    commit: str = field(default_factory=commit)
    began: str = field(
        default_factory=lambda: time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    )
    settings: dict[str, str] = field(default_factory=lambda: dict(SETTINGS))
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    runs: dict[str, dict[str, list[Figures]]] = field(default_factory=dict)

    def add(self, scenario: str, system: str, figures: Figures) -> None:
        """Take one run."""
        self.runs.setdefault(scenario, {}).setdefault(system, []).append(figures)

    def speeds(self, scenario: str) -> dict[str, float]:
        """Median jobs per second of each system."""
        return {
            system: median(runs)["jobs_per_second"]
            for system, runs in self.runs.get(scenario, {}).items()
        }

    def save(self, name: str) -> Path:
        """Write both files. Returns the Markdown one."""
        RESULTS.mkdir(exist_ok=True)
        medians = {
            scenario: {system: median(runs) for system, runs in by.items()}
            for scenario, by in self.runs.items()
        }
        (RESULTS / f"{name}.json").write_text(
            json.dumps(asdict(self) | {"medians": medians}, indent=1) + "\n"
        )
        path = RESULTS / f"{name}.md"
        path.write_text("\n".join(self._lines(medians)) + "\n")
        return path

    def _lines(self, medians: dict[str, dict[str, Figures]]) -> Iterable[str]:
        m = self.machine
        yield f"# Benchmark, {self.began}"
        yield ""
        yield (
            f"{m['cores']} cores ({m['cpu']}), {m['memory_gib']} GiB, Linux {m['kernel']},"
            f" Python {m['python']}; load before the first run {m['load_before']}."
            f" Checkout {self.commit}, size {self.size:g}."
        )
        yield (
            "Postgres 18 with "
            + ", ".join(f"{key} = {value}" for key, value in self.settings.items())
            + "."
        )
        if self.versions:
            yield (
                "Versions: "
                + ", ".join(
                    f"{name} {version}" for name, version in self.versions.items()
                )
                + "."
            )
        for title, entries in (("Skipped", self.missing), ("Failed", self.failed)):
            yield from (
                f"{title}: {name}: {' '.join(why.split())[-300:]}"
                for name, why in entries.items()
            )
        yield (
            "Medians of interleaved runs; `n` is their number."
            " `_us` are microseconds of CPU per job."
        )
        for scenario, by_system in medians.items():
            yield from ("", f"## {scenario}", "")
            yield from self._table(scenario, by_system)

    def _table(self, scenario: str, by_system: dict[str, Figures]) -> Iterable[str]:
        names = list(
            dict.fromkeys(
                name
                for figures in by_system.values()
                for name in figures
                if name != "jobs"
            )
        )
        rate = next((name for name in names if name.endswith("per_second")), None)
        bases = _bases(by_system, rate) if rate else {}
        head = ["system", "n", *names, *(f"x {base}" for base in bases)]
        yield "| " + " | ".join(head) + " |"
        yield "|---" * len(head) + "|"
        for system, figures in by_system.items():
            cells = [system, str(len(self.runs[scenario][system]))]
            cells += [_cell(name, figures.get(name)) for name in names]
            cells += (
                [f"{figures[rate] / base:.2f}" for base in bases.values()]
                if rate
                else []
            )
            yield "| " + " | ".join(cells) + " |"


def _bases(by_system: dict[str, Figures], rate: str) -> dict[str, float]:
    """What to compare with: the best peer, and the pgbench loop."""
    bases: dict[str, float] = {}
    peers = {
        name: f[rate]
        for name, f in by_system.items()
        if not name.startswith(("redrive", "pgbench")) and f.get(rate)
    }
    if peers:
        best = max(peers, key=lambda name: peers[name])
        bases[best] = peers[best]
    if by_system.get("pgbench", {}).get(rate):
        bases["pgbench"] = by_system["pgbench"][rate]
    return bases


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return ""
    form = next((form for end, form in UNITS.items() if name.endswith(end)), None)
    if form is None:
        form = "{:,.0f}" if abs(value) >= 100 else "{:.3g}"  # three digits say enough
    return form.format(value)
