"""Write the tables of the docs that repeat the code: settings, events, and granted functions.

Tables of capacity repeat what `python -m bench.capacity` has measured.
"""

import json
import re

from bench import cells, costs
from redrive.jobs.why.answer import Code
from redrive.settings import PREFIX, Settings
from redrive.worker import telemetry
from tools.generated import ROOT, Files, between_marks, main

SETTINGS = ROOT / "docs" / "settings.md"
OBSERVABILITY = ROOT / "docs" / "observability.md"
JOBS = ROOT / "docs" / "jobs.md"
ROLES = ROOT / "docs" / "roles.md"
PRIVILEGES = ROOT / "tests" / "sql" / "privileges.txt"
FUNCTIONS = ROOT / "sql" / "functions"
CAPACITY = ROOT / "docs" / "capacity.md"
MEASURED = ROOT / "bench" / "results" / "capacity.json"
OF_CAPACITY = {
    "capacity machine": costs.told_machine,
    "capacity costs": costs.cost_table,
    "capacity check": costs.check_table,
    "capacity sizes": costs.size_table,
}
"""What stands between which marks."""

SCALE_OUT = ROOT / "docs" / "internals" / "decisions" / "scale-out.md"
OF_CELLS = ROOT / "bench" / "results" / "cells.json"


def settings() -> str:
    """Return the table of all settings, made from their fields."""
    lines = ["| variable | default | what |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        lines.append(f"| `{PREFIX}{name.upper()}` | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


def reasons() -> str:
    """Return the table of the reasons why a job does not run."""
    lines = ["| code | what the text says |", "|---|---|"]
    lines += [f"| `{code}` | {code.says} |" for code in Code]
    return "\n".join(lines) + "\n"


def events() -> str:
    """Return the table in the docstring of telemetry."""
    lines = (telemetry.__doc__ or "").splitlines()
    return "".join(f"{line}\n" for line in lines if line.startswith("|"))


def capacity() -> str:
    """Return the page of capacity with its tables."""
    result = json.loads(MEASURED.read_text())
    page = CAPACITY.read_text()
    for name, lines in OF_CAPACITY.items():
        text = "".join(f"{line}\n" for line in lines(result))
        page = between_marks(CAPACITY, name, f"\n{text}\n", page)
    return page


def scale_out() -> str:
    """Return the page of scaling out with what cells did."""
    lines = cells.table(json.loads(OF_CELLS.read_text()))
    text = "".join(f"{line}\n" for line in lines)
    return between_marks(SCALE_OUT, "cells measured", f"\n{text}\n")


def granted() -> str:
    """Return a table of the functions that roles may call, from the list that tests compare."""
    lines = ["| function | roles | it can |", "|---|---|---|"]
    pattern = r"^function redrive\.(\w+?)(?:_v\d+)?\(.*: execute for (.*)$"
    roles = dict(re.findall(pattern, PRIVILEGES.read_text(), re.MULTILINE))
    for path in sorted(FUNCTIONS.glob("*/*.sql"), key=lambda path: path.stem):
        if path.stem not in roles:
            continue
        header = path.read_text().partition(": ")[2]
        first = re.split(r"\.\s", header, maxsplit=1)[0]
        purpose = re.sub(r"\s*\n-- *", " ", first).replace("|", "\\|")
        lines.append(f"| `{path.stem}` | {roles[path.stem]} | {purpose} |")
    return "\n".join(lines) + "\n"


def files() -> Files:
    """Return the pages."""
    return {
        SETTINGS: between_marks(SETTINGS, "settings", settings()),
        JOBS: between_marks(JOBS, "reasons", reasons()),
        ROLES: between_marks(ROLES, "granted functions", granted()),
        OBSERVABILITY: between_marks(OBSERVABILITY, "events", events()),
        CAPACITY: capacity(),
        SCALE_OUT: scale_out(),
    }


if __name__ == "__main__":
    main(files)
