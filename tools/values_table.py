"""Write the table of values in the chart's README, from values.yaml and its schema."""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tools.generated import ROOT, Files, between_marks, main

CHART = ROOT / "helm" / "redrive"
README = CHART / "README.md"
_KEY = re.compile(r"( *)([A-Za-z_]+):")


def comments(text: str) -> dict[tuple[str, ...], str]:
    """Return the comment directly above each key.

    A blank line ends a comment that belongs to no key.
    """
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
    values: Any,
    schema: dict[str, Any],
    root: dict[str, Any],
    path: tuple[str, ...] = (),
) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Yield each value as path, type and default."""
    is_of_kubernetes = schema.get("$ref") == "#/definitions/resources"
    if "$ref" in schema:
        schema = root["definitions"][schema["$ref"].rsplit("/", 1)[1]]
    if is_of_kubernetes or "properties" not in schema:
        yield path, kind(schema), values
        return
    for name, value in values.items():
        yield from rows(value, schema["properties"][name], root, (*path, name))


def kind(schema: dict[str, Any]) -> str:
    """Return the type of a value in a word or two."""
    if "enum" in schema:
        return " \\| ".join(
            f"`{choice}`" if choice else '`""`' for choice in schema["enum"]
        )
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
    """Return the whole table in Markdown.

    Raises:
        ValueError: a value has no comment.
    """
    text = (CHART / "values.yaml").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    said = comments(text)
    lines = ["| value | type | default | what it is |", "|---|---|---|---|"]
    for path, of, default in rows(yaml.safe_load(text), schema, schema):
        name = ".".join(path)
        if not said.get(path):
            message = f"{name} has no comment in values.yaml"
            raise ValueError(message)
        shown = "" if default is None else f"`{json.dumps(default)}`"
        meaning = said[path].replace("|", r"\|")
        lines.append(f"| `{name}` | {of} | {shown} | {meaning} |")
    return "\n".join(lines) + "\n"


def files() -> Files:
    """Return the README with its table."""
    return {README: between_marks(README, "values", table())}


if __name__ == "__main__":
    main(files)
