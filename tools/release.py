"""Say whether a tag can be released, and print its section of the changelog.

    python3 -m tools.release v0.2.0

It needs only Python. Exit status 64 means that the tag is not the version, or that the
changelog has no text about it.
"""

import re
import sys

from tools.generated import ROOT
from tools.versions import version


def notes(changelog: str, released: str) -> str | None:
    """Return the changelog's text about a version; None if it has none."""
    section = rf"^## \[{re.escape(released)}\][^\n]*\n(.*?)(?=^## \[|\Z)"
    found = re.search(section, changelog, re.MULTILINE | re.DOTALL)
    return found[1].strip() or None if found else None


def trouble(tag: str, ours: str, changelog: str) -> str | None:
    """Return why the tag cannot be released; None if it can."""
    if tag != f"v{ours}":
        return (
            f"the tag is {tag} and the version is {ours}; tag v{ours},"
            " or set version in pyproject.toml and run: make generate"
        )
    if notes(changelog, ours) is None:
        return f"CHANGELOG.md has no section [{ours}]; give what is Unreleased this name and a date"
    return None


def main(tag: str) -> int:
    """Check a tag and print its notes; return the exit status."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    found = trouble(tag, version(), changelog)
    print(
        found or notes(changelog, version()), file=sys.stderr if found else sys.stdout
    )
    return 64 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
