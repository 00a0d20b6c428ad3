"""Copy alerts and dashboards into the chart, which can read only its own files."""

from pathlib import Path

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
    return copies


if __name__ == "__main__":
    main(files)
