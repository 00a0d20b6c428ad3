"""Build the published files into dist/: an sdist, and the wheel made from it.

    python -m tools.package --home https://github.com/me/redrive

The address of a package is known only where it is published. Only there does it get
addresses, and README links that also work elsewhere.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.generated import ROOT
from tools.versions import version

PARTS = (
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "alerts",
    "pyproject.toml",
    "service",
    "sql",
)
LINK = re.compile(r"(!?)(\[[^]]*])\((?![a-z]+:|#)([^)\s]+)\)")


def with_addresses(pyproject: str, home: str, tag: str) -> str:
    """Return the metadata with addresses."""
    return f"""{pyproject}
[project.urls]
Homepage = "{home}"
Documentation = "{home}/blob/{tag}/docs/README.md"
Changelog = "{home}/blob/{tag}/CHANGELOG.md"
Issues = "{home}/issues"
"""


def with_absolute_links(readme: str, home: str, tag: str) -> str:
    """Return the page with links to this release's files, and pictures that load."""
    return LINK.sub(
        lambda link: (
            f"{link[1]}{link[2]}({home}/{'raw' if link[1] else 'blob'}/{tag}/{link[3]})"
        ),
        readme,
    )


def build(output: Path, home: str | None = None) -> None:
    """Build from a copy.

    Nothing here changes, and no unnamed file is included.
    """
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        for part in PARTS:
            source, target = ROOT / part, copy / part
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, target, symlinks=True, ignore=ignored)
            else:
                shutil.copy(source, target)
        if home:
            tag = f"v{version()}"
            for name, change in (
                ("pyproject.toml", with_addresses),
                ("README.md", with_absolute_links),
            ):
                path = copy / name
                path.write_text(change(path.read_text(), home, tag))
        command = ("-m", "build", "--no-isolation", "--outdir", output.resolve(), copy)
        subprocess.run([sys.executable, *command], check=True)


def main() -> None:
    """Run as a program."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--home", help="where the repository is, as people open it")
    options.add_argument("--output", type=Path, default=ROOT / "dist")
    given = options.parse_args()
    build(given.output, given.home)


if __name__ == "__main__":
    main()
