"""Write the version that pyproject.toml has wherever else one stands: chart, image, pages."""

import re
import tomllib

from tools.generated import ROOT, Files, main

NAMED = re.compile(
    r"(redrive:|^version: |^appVersion: |^ARG VERSION=|--version )\d+\.\d+\.\d+", re.MULTILINE
)
PLACES = (
    "Dockerfile",
    "docs/compatibility.md",
    "docs/kubernetes.md",
    "helm/redrive/Chart.yaml",
)


def version() -> str:
    """Return the version of the package, of which all others are copies."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def files() -> Files:
    """The places where it stands, too."""
    ours = version()
    texts = {ROOT / place: (ROOT / place).read_text() for place in PLACES}
    return {path: NAMED.sub(rf"\g<1>{ours}", text) for path, text in texts.items()}


if __name__ == "__main__":
    main(files)
