"""Write .github/CODEOWNERS from the README's table "I want to change ...": who is asked."""

import re

from tools.generated import ROOT, Files, main

OWNERS = ""
"""Of every area, until they have different ones: the team of whoever runs the project."""
HEAD = """\
# The areas of the project, made by `make generate` from the README's table. No owner is named:
# its maintainers look at every change. tools/code_owners.py is where a team is named.
"""


def areas(readme: str) -> dict[str, list[str]]:
    """What people want to change -> the files they open, and their tests."""
    table = readme.partition("| I want to change ... |")[2].partition("\n\n")[0]
    rows = (line.split(" | ") for line in table.splitlines()[2:])
    return {
        row[0].removeprefix("| "): re.findall(r"\]\(([^)]+)\)", " ".join(row[1:])) for row in rows
    }


def files() -> Files:
    """The one file."""
    found = areas((ROOT / "README.md").read_text())
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
