"""Write the dashboards: `python -m dashboards.generate [--show-cluster] [DIRECTORY]`.

What it writes is committed and shipped, and a test holds it to this. With --show-cluster the
variable `cluster` can be chosen, for a Prometheus that watches several.
"""

import argparse
import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import dead_letters, overview, worker
from dashboards.parts import Made

HERE = Path(__file__).parent
BOARDS = {
    "overview.json": overview.build,
    "dead-letters.json": dead_letters.build,
    "worker.json": worker.build,
}


def texts(*, show_cluster: bool = False) -> dict[str, str]:
    """Every file, by name."""
    return {
        name: text_of(build(show_cluster=show_cluster).build()) for name, build in BOARDS.items()
    }


def text_of(dashboard: Made) -> str:
    """A file."""
    for link in dashboard.links or ():
        link.placement = None  # the SDK would move them from the bar into a menu
    return json.dumps(dashboard, cls=JSONEncoder, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write them."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("directory", nargs="?", type=Path, default=HERE)
    options.add_argument("--show-cluster", action="store_true", help="let the cluster be chosen")
    chosen = options.parse_args()
    chosen.directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts(show_cluster=chosen.show_cluster).items():
        (chosen.directory / name).write_text(text)


if __name__ == "__main__":
    main()
