"""Make the dashboards: `python -m tools.dashboards.generate [DIRECTORY]`.

The output is committed and shipped. With --show-cluster, users can choose the variable
`cluster`, for a Prometheus that watches several.
"""

import argparse
import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from tools import generated
from tools.dashboards import dead_letters, overview, worker
from tools.dashboards.parts import Made

DIRECTORY = generated.ROOT / "dashboards"
BOARDS = {
    "overview.json": overview.build,
    "dead-letters.json": dead_letters.build,
    "worker.json": worker.build,
}


def files(
    directory: Path = DIRECTORY, *, show_cluster: bool = False
) -> generated.Files:
    """Return the file of every dashboard."""
    return {
        directory / name: text_of(build(show_cluster=show_cluster).build())
        for name, build in BOARDS.items()
    }


def text_of(dashboard: Made) -> str:
    """Return the text of a dashboard's file."""
    for link in dashboard.links or ():
        link.placement = None  # the SDK would move them into a menu
    return json.dumps(dashboard, cls=JSONEncoder, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the dashboards; return the exit status."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("directory", nargs="?", type=Path, default=DIRECTORY)
    options.add_argument(
        "--show-cluster", action="store_true", help="let the cluster be chosen"
    )
    generated.add_check(options)
    chosen = options.parse_args()
    return generated.run(
        lambda: files(chosen.directory, show_cluster=chosen.show_cluster),
        check=chosen.check,
    )


if __name__ == "__main__":
    sys.exit(main())
