"""Write .github/CODEOWNERS from CONTRIBUTING.md's table "I want to change ..."."""

import re

from tools.generated import ROOT, Files, main

OWNERS = ""
"""The team that owns every area, until areas have teams of their own."""
HEAD = """\
# The areas of the project, made by `make generate` from the table in CONTRIBUTING.md. No owner
# is named: the maintainers look at every change. Name teams in tools/code_owners.py.
"""


def areas(page: str) -> dict[str, list[str]]:
    """Return, for each thing that people want to change, its files and tests."""
    table = page.partition("| I want to change ... |")[2].partition("\n\n")[0]
    rows = (line.split(" | ") for line in table.splitlines()[2:])
    return {
        row[0].removeprefix("| "): re.findall(r"\]\(([^)]+)\)", " ".join(row[1:]))
        for row in rows
    }


def files() -> Files:
    """Return CODEOWNERS."""
    found = areas((ROOT / "CONTRIBUTING.md").read_text())
    text = HEAD + "".join(
        f"\n# {area}\n"
        + "".join(f"/{path}{_slash(path)} {OWNERS}".rstrip() + "\n" for path in paths)
        for area, paths in found.items()
    )
    return {ROOT / ".github" / "CODEOWNERS": text}


def _slash(path: str) -> str:
    return "/" if (ROOT / path).is_dir() else ""


if __name__ == "__main__":
    main(files)
