"""Write the tables of docs/faults.md from the results of the chaos tests.

The results are in trials/chaos/results.
"""

import json
from collections import Counter
from typing import Any

from tools.generated import ROOT, Files, between_marks, main
from trials.chaos.schedule import FAULTS

PAGE = ROOT / "docs" / "faults.md"
RESULTS = ROOT / "trials" / "chaos" / "results"

ZEROS = {
    "lost": "jobs lost",
    "stuck": "jobs stuck",
    "unexplained": "handlers started again without a reason",
    "stale_accepted": "accepted settlements from a worker that had lost the job",
    "innocents_dead": "innocent jobs among the dead letters",
    "effects_twice": "effects written twice",
}
BESIDE = ("lost", "stuck", "unexplained", "stale_accepted", "innocents_dead", "crashed")
PEERS_HEAD = (
    "| queue | version | jobs | lost | stuck | started again without a reason"
    " | stale settlements accepted"
    " | given up wrongly | workers that ended by themselves | recovery, median | settings |"
)
HELD = ("jobs", "lost", "stuck", "unexplained", "stale_accepted", "held_jobs")
HOLDS_HEAD = (
    "| queue | version | jobs | lost | stuck | started again without a reason"
    " | stale settlements accepted"
    " | jobs judged by their wait | median wait | longest wait | slowest end after SIGTERM |"
)


def _read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def _bound(found: int, n: int) -> str:
    """Return a zero with its bound.

    By the rule of three, the share is below 3 / n in 95 of 100 cases.
    """
    return f"0 (below {3 / n:.2g})" if found == 0 and n else str(found)


def faults(run: dict[str, Any]) -> str:
    """Return the table of faults, with how often each was injected."""
    lines = ["| fault | what happens | times |", "|---|---|---:|"]
    done = run["faults"]
    lines += [
        f"| `{kind}` | {what} | {run['left_out'].get(kind) or done.get(kind, 'not in this run')} |"
        for kind, what in FAULTS.items()
    ]
    return "\n".join(lines) + "\n"


def verdict(run: dict[str, Any]) -> str:
    """Return the text on the outcome of the jobs."""
    again = ", ".join(f"`{kind}` {count:,}" for kind, count in run["explained"].items())
    by_old = run.get("innocents_dead_by_old_version", 0)
    lines = ["| | |", "|---|---:|"]
    lines += [
        f"| {what} | {_bound(run[name], run['jobs'])} |" for name, what in ZEROS.items()
    ]
    lines += [
        f"| jobs | {run['jobs']:,} |",
        f"| completed | {run['completed']:,} |",
        f"| dead letters | {run['dead']:,} |",
        f"| of these, jobs whose process we killed three times | {run.get('accused', 0):,} |",
        f"| of these, innocent jobs that the previous release gave up | {by_old} |",
        f"| handlers started again for a reason | {run['duplicates']:,} |",
        f"| from a worker's death to the next start of the job, median | {run['recovery_p50']} s |",
        f"| the same, longest | {run['recovery_max']} s |",
        f"| slowest exit after SIGTERM (4 s to drain) | {run['slowest_term']} s |",
        f"| from the last fault until no job was left | {run['settled_in']} s |",
    ]
    head = f"Tier `{run['tier']}`, seed {run['seed']}, {run['seconds'] / 60:.0f} minutes.\n\n"
    return head + "\n".join(lines) + f"\n\nReasons for a second start: {again}.\n"


def peers(found: dict[str, Any]) -> str:
    """Return the table that compares queues."""
    lines = [PEERS_HEAD, "|---|---|" + "---:|" * 8 + "---|"]
    for run in found["results"]:
        cells = " | ".join(f"{run[name]:,}" for name in BESIDE)
        recovery = "" if run["recovery_p50"] is None else f"{run['recovery_p50']} s"
        lines.append(
            f"| {run['system']} | {run['version']} | {run['jobs']:,} | {cells} | {recovery}"
            f" | [{run['recovery']}]({run['page']}) |"
        )
    done = ", ".join(
        f"`{kind}` {count}" for kind, count in found["results"][0]["faults"].items()
    )
    return "\n".join(lines) + f"\n\nSeed {found['seed']}. Faults of each run: {done}.\n"


def holds(found: dict[str, Any]) -> str:
    """Return the table of waits while a transaction is held open."""
    lines = [HOLDS_HEAD, "|---|---|" + "---:|" * 9]
    for run in found["results"]:
        cells = " | ".join(f"{run[name]:,}" for name in HELD)
        lines.append(
            f"| {run['system']} | {run['version']} | {cells}"
            f" | {_seconds(run['held_wait_p50'])} | {_seconds(run['held_wait_max'])}"
            f" | {run['slowest_term']} s |"
        )
    missing = "".join(
        f" Not run: {name}, {why}." for name, why in found["missing"].items()
    )
    done = found["results"][0]["faults"]
    return (
        "\n".join(lines)
        + f"\n\nSeed {found['seed']}. Faults of each run: `hold_transaction`"
        f" {done['hold_transaction']}, `term` {done['term']}.{missing}\n"
    )


HEADLINE = {
    "jobs": (2_000_000, ()),
    "processes killed": (2_000, ("kill_runner", "kill_supervisor", "kill_group")),
    "workers paused": (500, ("pause_group", "pause_supervisor", "pause_runner")),
    "crashes of Postgres": (500, ("immediate_stop", "kill_postmaster", "kill_backend")),
    "connections cut": (
        500,
        ("cut", "cut_claim", "cut_settle", "cut_producer", "black_hole"),
    ),
    "SIGTERMs": (1_000, ("term",)),
    "failovers": (50, ("fail_over", "split")),
    "full disks": (20, ("fill_disk",)),
}
"""What the ledger is to add up to, and which faults count."""


def ledger(runs: list[dict[str, Any]]) -> str:
    """Return what all runs of the ledger add up to, and a line for runs of one commit and tier."""
    lines = ["| | so far | aim |", "|---|---:|---:|"]
    for name, (aim, kinds) in HEADLINE.items():
        so_far = sum(
            sum(run["faults"].get(kind, 0) for kind in kinds) if kinds else run["jobs"]
            for run in runs
        )
        lines.append(f"| {name} | {so_far:,} | {aim:,} |")
    broken = [run for run in runs if run["failures"]]
    judged = [run["allowed"] for run in runs if run["allowed"] is not None]
    lines += [
        "",
        (
            f"Runs: {len(runs)}. Runs in which something failed: {len(broken)}."
            f" Runs that the model allowed: {sum(judged)} of {len(judged)} that it was asked about."
        ),
        "",
        "| date | commit | tier | runs | seeds | jobs | faults | failed | the model allows |",
        "|---|---|---|---:|---:|---:|---:|---|---:|",
    ]
    lines += [_row(of) for of in reversed(_alike(runs))]
    return "\n".join(lines) + "\n"


def _alike(runs: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the runs by commit and tier, in the order of their first run."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in runs:
        found.setdefault((run["commit"], run["tier"]), []).append(run)
    return list(found.values())


def _row(runs: list[dict[str, Any]]) -> str:
    seeds = sorted(run["seed"] for run in runs)
    failed = Counter[str]()
    for run in runs:
        failed.update(run["failures"])
    judged = [run["allowed"] for run in runs if run["allowed"] is not None]
    return (
        f"| {runs[0]['at']} | `{runs[0]['commit']}` | {runs[0]['tier']} | {len(runs)}"
        f" | {seeds[0]}{f' to {seeds[-1]}' if len(runs) > 1 else ''}"
        f" | {sum(run['jobs'] for run in runs):,}"
        f" | {sum(sum(run['faults'].values()) for run in runs):,}"
        f" | {', '.join(f'{name} {n}' for name, n in failed.items()) or 'nothing'}"
        f" | {f'{sum(judged)} of {len(judged)}' if judged else 'was not asked'} |"
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


def files() -> Files:
    """Return the page with its tables filled from the results."""
    headline = _read("headline")
    tables = {
        "faults": faults(headline),
        "verdict": verdict(headline),
        "peers": peers(_read("peers")),
        "holds": holds(_read("holds")),
        "ledger": ledger(
            [
                json.loads(line)
                for line in (RESULTS / "ledger.jsonl").read_text().splitlines()
            ]
        ),
    }
    text = PAGE.read_text()
    for name, table in tables.items():
        text = between_marks(PAGE, name, table, text)
    return {PAGE: text}


if __name__ == "__main__":
    main(files)
