"""Write the version of pyproject.toml to all other places: chart, image, pages."""

import re
import tomllib

from tools.generated import ROOT, Files, main

NAMED = re.compile(
    r"(redrive:|^version: |^appVersion: |^ARG VERSION=|--version )\d+\.\d+\.\d+",
    re.MULTILINE,
)
PLACES = (
    "Dockerfile",
    "docs/compatibility.md",
    "docs/kubernetes.md",
    "docs/servers.md",
    "docs/tutorial.md",
    "helm/redrive/Chart.yaml",
)


def version() -> str:
    """Return the version of the package; all others are copies of it."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def files() -> Files:
    """Return the files that repeat the version."""
    ours = version()
    texts = {ROOT / place: (ROOT / place).read_text() for place in PLACES}
    return {path: NAMED.sub(rf"\g<1>{ours}", text) for path, text in texts.items()}


if __name__ == "__main__":
    main(files)
