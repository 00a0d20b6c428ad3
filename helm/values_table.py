"""Write the table of values in helm/redrive/README.md from the comments of values.yaml and the
types of its schema.

With --check nothing is written: exit 1 when the table is not what it would be.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parent / "redrive"
BEGIN, END = "<!-- values: begin -->\n", "<!-- values: end -->\n"
_KEY = re.compile(r"( *)([A-Za-z]+):")


def comments(text: str) -> dict[tuple[str, ...], str]:
    """The comment right above each key. A blank line ends a comment that belongs to nothing."""
    found: dict[tuple[str, ...], str] = {}
    path: list[str] = []
    above: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            above.append(stripped.lstrip("# "))
        elif key := _KEY.match(line):
            path = [*path[: len(key[1]) // 2], key[2]]
            found[tuple(path)] = " ".join(above)
            above = []
        else:
            above = []
    return found


def rows(
    values: Any, schema: dict[str, Any], root: dict[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Each value as path, type and default."""
    is_of_kubernetes = schema.get("$ref") == "#/definitions/resources"
    if "$ref" in schema:
        schema = root["definitions"][schema["$ref"].rsplit("/", 1)[1]]
    if is_of_kubernetes or "properties" not in schema:
        yield path, kind(schema), values
        return
    for name, value in values.items():
        yield from rows(value, schema["properties"][name], root, (*path, name))


def kind(schema: dict[str, Any]) -> str:
    """What a value may be, in a word or two."""
    if "enum" in schema:
        return " \\| ".join(f"`{choice}`" if choice else '`""`' for choice in schema["enum"])
    if "oneOf" in schema:
        return " or ".join(kind(choice) for choice in schema["oneOf"])
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    words = " or ".join(
        {"object": "map", "array": "list", "null": "empty"}.get(t, t) for t in types
    )
    if "maximum" in schema:
        return f"{words}, {schema['minimum']} to {schema['maximum']}"
    return f"{words}, at least {schema['minimum']}" if "minimum" in schema else words


def table() -> str:
    """The whole table, as Markdown."""
    text = (CHART / "values.yaml").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    said = comments(text)
    lines = ["| value | type | default | what it is |", "|---|---|---|---|"]
    for path, of, default in rows(yaml.safe_load(text), schema, schema):
        shown = "" if default is None else f"`{json.dumps(default)}`"
        lines.append(
            f"| `{'.'.join(path)}` | {of} | {shown} | {said.get(path, '').replace('|', chr(92) + '|')} |"
        )
        if not said.get(path):
            message = f"{'.'.join(path)} has no comment in values.yaml"
            raise SystemExit(message)
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    readme = CHART / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    wanted = before + BEGIN + table() + END + after
    if arguments == ["--check"]:
        if readme.read_text() != wanted:
            print(
                "helm/redrive/README.md: the table of values is not up to date; run: python helm/values_table.py"
            )
            return 1
        return 0
    readme.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
