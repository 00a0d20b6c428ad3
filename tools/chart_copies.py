"""Copy alerts, dashboards and names of settings into the chart.

It can read only its own files.
"""

from pathlib import Path

import click

from redrive.cli.main import cli
from redrive.cli.support.options import variables
from redrive.settings import PREFIX, Settings
from tools.generated import ROOT, Files, main

CHART_FILES = ROOT / "helm" / "redrive" / "files"
COPIED = (("alerts", "*.yaml"), ("dashboards", "*.json"))


def files() -> Files:
    """Return every copy; if its original is gone, it is removed too."""
    copies: dict[Path, str | None] = {}
    for folder, pattern in COPIED:
        copies |= dict.fromkeys((CHART_FILES / folder).glob("*"))
        originals = sorted((ROOT / folder).glob(pattern))
        copies |= {
            CHART_FILES / folder / path.name: path.read_text() for path in originals
        }

    options = variables(click.Context(cli))
    names = {PREFIX + name.upper() for name in Settings.model_fields} | {*options}
    copies[CHART_FILES / "settings.txt"] = "".join(
        f"{name}\n" for name in sorted(names)
    )
    return copies


if __name__ == "__main__":
    main(files)
