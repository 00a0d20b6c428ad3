"""values.yaml, values.schema.json, README.md and templates say the same."""

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from itertools import product
from pathlib import Path as PathOnDisk
from typing import Any

import jsonschema
import pytest
import yaml

from tests.chart.conftest import EVERYTHING, Render, read_values
from tests.chart.helm import CHART, Helm, HelmRefusedError
from tests.chart.rendered import LOGINS

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.load((CHART / "values.yaml").read_text(), yaml.CSafeLoader)
FOR_PARENT_CHARTS = {("enabled",)}
"""Helm hands them to every chart that is a part of another; there is nothing to do with them here.
"""

Path = tuple[str, ...]
"""Of a value: its keys."""


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    return (
        SCHEMA["definitions"][schema["$ref"].rsplit("/", 1)[1]]
        if "$ref" in schema
        else schema
    )


def leaves(schema: dict[str, Any], path: Path = ()) -> Iterator[Path]:
    properties = resolved(schema).get("properties")
    if properties is None:
        yield path
    for name, of in (properties or {}).items():
        yield from leaves(of, (*path, name))


def schema_at(path: Path) -> dict[str, Any]:
    schema = SCHEMA
    for name in path:
        schema = resolved(resolved(schema)["properties"][name])
    return schema


def at(values: dict[str, Any], path: Path, default: Any = None) -> Any:
    for name in path:
        if name not in values:
            return default
        values = values[name]
    return values


def changed(values: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    result = deepcopy(values)
    inner = result
    for name in path[:-1]:
        inner = inner.setdefault(name, {})
    inner[path[-1]] = value
    return result


LEAVES = [path for path in leaves(SCHEMA) if path not in FOR_PARENT_CHARTS]

ALL = read_values(EVERYTHING)
UNRELATED = {"files", "endpoints"}
"""Pools that use nothing of the defaults that others do not use."""
POOLS = {name: ALL[name] for name in ("database", "workerDefaults")} | {
    "workers": {
        name: pool for name, pool in ALL["workers"].items() if name not in UNRELATED
    },
    "purge": {"enabled": False},
    "redrive": {"template": {"enabled": False}},
}
WITHOUT_POOLS = ALL | {"workers": {"plain": {}}}
SHARED = {
    "database": ALL["database"],
    "workerDefaults": {"handlers": "a:b"},
    "workers": {"plain": {}},
}
"""What most values need, beside their own part of everything: a third of the objects."""
CONTEXTS = [
    # what those two exclude
    {"postgres": {"trial": {"enabled": True}}, "networkPolicy": {"enabled": True}},
    {
        "database": LOGINS,
        "workerDefaults": {"handlers": "a:b"},
        "workers": {"one": {}, "two": {"handlers": "c:d"}},
    },
    {"database": LOGINS | {"tls": {"caConfigMap": {"name": "ca"}}}},
    {"database": {}, "migrations": {"mode": "none"}},
    {"serviceAccount": {"create": False}, "database": LOGINS},
    {"database": {login: {"url": "postgresql://h/d"} for login in LOGINS}},
    {
        "database": LOGINS,
        "console": {
            "enabled": True,
            "tokens": {"existingSecret": "tokens"},
            "logins": {
                "viewer": {"url": "postgresql://h/d"},
                "operator": {"existingSecret": "o"},
            },
        },
    },
    {"database": LOGINS, "redrive": {"automatic": {"filter": {"queue": ["mail"]}}}},
    {
        "database": LOGINS,
        "workerDefaults": {
            "targets": {
                "allowed_hosts": ["here.example", "changed.example"],
                "targets": {"mail": {"url": "https://here.example"}},
            }
        },
        "workers": {"one": {}},
    },
    {"database": LOGINS, "cells": {"existingSecret": "cells"}},
    {
        "database": LOGINS,
        "gateway": {
            "enabled": True,
            "login": {"existingSecret": "gateway"},
            "existingConfigMap": "sources",
        },
    },
]

# Tried in turn, for want of a word that fits every field.
CANDIDATES = [
    ["changed", "here.example"],  # a host of the targets above
    True,
    False,
    "changed",
    "changed:changed",
    "app.changed:jobs",
    "2h",
    "3m",
    "65Mi",
    "0 1 * * *",
    "https://changed.example",
    "postgresql://changed/changed",
    "sha256:" + "1" * 64,
    ["changed"],
    "changed@changed.example",
    [{"name": "changed"}],
    [{"name": "changed", "emptyDir": {}}],
    [{"name": "changed", "image": "changed"}],
    [{"name": "tmp", "mountPath": "/changed"}],
    [{"secretRef": {"name": "changed"}}],
    [{"key": "changed", "operator": "Exists"}],
    [{"topologyKey": "changed", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
    [{"ip": "10.0.0.7", "hostnames": ["changed"]}],
    [{"namespaceSelector": {"matchLabels": {"changed": "x"}}}],
    [{"ports": [{"port": 8443}]}],
    [{"action": "drop", "regex": "changed"}],
    ["RedriveMetricsAbsent"],
    [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "changed"}}],
    {"cpu": "1"},  # a container refuses most of the objects below
    {"changed": {"handlers": "a:b"}},
    {"changed": {"objectives": {"dead_ratio": 0.5}}},
    {"audit": "800d"},
    {"changed": "operator"},
    "openid changed",
    ["10.0.0.1"],
    {"changed": {"url": "https://changed.example"}},
    {"changed": {"queue": "changed", "url": "amqp://changed"}},
    {"changed": {"queue_url": "https://changed.example"}},
    [{"kind": "changed", "cron": "@daily"}],
    {"changed": "x"},
    {"key": "1"},
    {"nodeAffinity": {"changed": "x"}},
    {"options": [{"name": "changed"}]},
]


@cache
def validator(path: Path) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(
        {**schema_at(path), "definitions": SCHEMA["definitions"]}
    )


def valid(path: Path, value: Any) -> bool:
    return validator(path).is_valid(value)


def candidates(path: Path) -> Iterator[Any]:
    schema = schema_at(path)
    default = at(DEFAULTS, path)
    whole = (
        [default + 1]
        if isinstance(default, (int, float)) and not isinstance(default, bool)
        else [50]
    )
    for value in [
        *schema.get("enum", []),
        *schema.get("items", {}).get("enum", []),
        *CANDIDATES,
        *whole,
    ]:
        for shaped in (value, [value]):
            if valid(path, shaped):
                yield shaped


def depth(context: dict[str, Any], path: Path) -> int:
    """How many of the keys of a path are set in these values."""
    return sum(at(context, path[: n + 1]) is not None for n in range(len(path)))


def small(path: Path) -> dict[str, Any]:
    """The smallest values in which most of a part have an effect."""
    if path[0] == "workerDefaults":
        return POOLS
    return SHARED | ({path[0]: ALL[path[0]]} if path[0] in ALL else {})


def contexts(path: Path) -> list[dict[str, Any]]:
    """What a value may have an effect in; first where its neighbours are set."""
    found = [small(path), WITHOUT_POOLS, *CONTEXTS]
    return sorted(found, key=lambda values: -depth(values, path))


def marked(path: Path) -> tuple[str, Any] | None:
    """A mark that is this value's own, and the value with it; None if it takes none."""
    number = 7000 + LEAVES.index(path)
    word = f"m{number}m"
    for value in candidates(path):
        text = json.dumps(value)
        if value == "changed" or (
            "changed" in text and valid(path, json.loads(text.replace("changed", word)))
        ):
            return word, json.loads(text.replace("changed", word))
    return (str(number), number) if valid(path, number) else None


def places(pair: tuple[tuple[int, Any], tuple[int, Any]]) -> int:
    return pair[0][0] + pair[1][0]


class Effects:
    """What the chart makes of a value."""

    def __init__(self, render: Render, chart: PathOnDisk) -> None:
        self._render = render
        self._chart = chart

    def seen(self, paths: list[Path]) -> set[Path]:
        """Those whose marks are in what is rendered: all at once, or if Helm refuses that,
        each half of them.
        """
        values = small(paths[0])
        marks = {path: marked(path) for path in paths}
        for path, mark in marks.items():
            assert mark
            values = changed(values, path, mark[1])
        try:
            text = self._render(values, chart=self._chart).text
        except HelmRefusedError:
            half = len(paths) // 2
            return self.seen(paths[:half]) | self.seen(paths[half:]) if half else set()
        return {path for path, mark in marks.items() if mark and mark[0] in text}

    def is_any(self, path: Path) -> bool:
        """Whether any value changes anything anywhere; what is likely comes first."""
        pairs = product(enumerate(candidates(path)), enumerate(contexts(path)))
        return any(
            self._text(path, changed(context, path, value))
            not in {"", self._text(path, context)}
            for (_, value), (_, context) in sorted(pairs, key=places)
            if value != at(context, path, at(DEFAULTS, path))
        )

    def _text(self, path: Path, values: dict[str, Any]) -> str:
        try:
            return self._render(values, chart=self._chart).text
        except HelmRefusedError as refused:
            # A rule over several values that names this one has read it; other refusals say
            # nothing.
            return str(refused) if ".".join(path) in str(refused) else ""


@pytest.mark.parametrize("key", sorted({path[0] for path in LEAVES}))
def test_every_value_changes_something(
    render: Render, with_dashboard: PathOnDisk, key: str
) -> None:
    paths = [path for path in LEAVES if path[0] == key]
    effects = Effects(render, with_dashboard)
    takes_marks = [path for path in paths if marked(path)]
    seen = effects.seen(takes_marks) if takes_marks else set()

    assert [
        ".".join(path)
        for path in paths
        if path not in seen and not effects.is_any(path)
    ] == [], "can be set, and nothing comes of it"


def test_every_default_is_in_the_schema_and_every_value_of_the_schema_has_a_default() -> (
    None
):
    def paths(values: Any, schema: dict[str, Any], path: Path = ()) -> Iterator[Path]:
        if "properties" not in resolved(schema):
            yield path
            return
        for name, value in values.items():
            assert name in resolved(schema)["properties"], (
                f"{'.'.join((*path, name))} is not in values.schema.json"
            )
            yield from paths(value, resolved(schema)["properties"][name], (*path, name))

    assert set(paths(DEFAULTS, SCHEMA)) == set(LEAVES)


def test_the_defaults_are_valid() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(DEFAULTS, SCHEMA)


def test_every_object_of_the_schema_is_closed() -> None:
    def unclosed(schema: Any, path: str) -> Iterator[str]:
        if isinstance(schema, dict):
            if (
                "properties" in schema
                and "type" in schema
                and schema.get("additionalProperties") is not False
            ):
                yield path
            for name, inner in schema.items():
                yield from unclosed(inner, f"{path}/{name}")

    # A parent chart shares values there with all its charts, and most are not ours.
    assert list(unclosed(SCHEMA, "")) == ["/properties/global"]


def test_a_misspelt_value_is_refused_wherever_it_stands() -> None:
    schema = jsonschema.Draft7Validator(SCHEMA)

    def refusals(path: Path) -> list[str]:
        misspelt = changed(DEFAULTS, (*path, "noSuchValue"), 1)
        return [error.message for error in schema.iter_errors(misspelt)]

    places = {(), *(path[:n] for path in LEAVES for n in range(1, len(path)))}
    places -= {("global",)}
    found = {".".join(path): refusals(path) for path in places}

    assert {
        place: refused
        for place, refused in found.items()
        if len(refused) != 1 or "noSuchValue" not in refused[0]
    } == {}


def test_helm_has_nothing_to_say(helm: Helm, cluster: Any) -> None:
    """There was no icon."""
    found = helm.run("lint", kubeconfig=cluster.kubeconfig, chart=str(CHART))

    assert not found["Messages"]
    assert not found["Errors"]


def test_the_chart_says_who_keeps_it_and_what_changed() -> None:
    """What Artifact Hub shows."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    changes = yaml.safe_load(chart["annotations"]["artifacthub.io/changes"])
    kinds = {"added", "changed", "deprecated", "removed", "fixed", "security"}

    assert [maintainer["name"] for maintainer in chart["maintainers"]]
    assert chart["icon"].startswith("data:image/svg+xml;base64,")
    assert {change["kind"] for change in changes} <= kinds
    assert all(change["description"] for change in changes)


def complete(schema: dict[str, Any], path: Path = ()) -> dict[str, Any]:
    """What says that nothing may be missing."""
    found = {
        name: resolved(of)
        for name, of in resolved(schema)["properties"].items()
        if (*path, name) not in FOR_PARENT_CHARTS
    }
    inner = {
        name: complete(of, (*path, name))
        for name, of in found.items()
        if "properties" in of and of is not SCHEMA["definitions"]["resources"]
    }
    needed = [name for name, of in found.items() if "null" not in of.get("type", [])]
    return {"required": needed} | ({"properties": inner} if inner else {})


def test_a_default_that_is_set_to_null_is_refused_and_not_missed_by_a_template() -> (
    None
):
    """Helm takes a null for "no such value", and templates ended at a nil pointer."""
    assert SCHEMA["definitions"]["complete"] == complete(SCHEMA), (
        "set it to what is right here"
    )


def test_null_where_it_means_nothing_is_named(render: Render) -> None:
    """Of one that a template would have looked into."""
    with pytest.raises(
        HelmRefusedError, match="missing property 'podDisruptionBudget'"
    ):
        render({"database": LOGINS, "workerDefaults": {"podDisruptionBudget": None}})

    assert render({"database": LOGINS, "pods": {"runAsUser": None, "fsGroup": None}})
