"""Random values, drawn from the schema, and what Kubernetes says of the objects they become.

Hypothesis draws them, so what fails is shrunk to the values that matter. `make chart-fuzz` draws
many, the tests a few.
"""

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import yaml
from hypothesis import strategies as st
from kubernetes_validate import utils

from tests.chart.helm import CHART, Release
from tests.chart.rendered import LOGINS

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.load((CHART / "values.yaml").read_text(), yaml.CSafeLoader)

Values = dict[str, Any]
Path = tuple[str, ...]

# What YAML, templates, JSON, PromQL, SQL or a shell could take for something else.
SIMPLE = """
    no on yes off true null ~ y 1e3 1e6 0x10 0o17 0755 12 1.10 .5 2026-01-01 12:30:45 - {{ }}
    ${A} $1 ${1} %s [ {a &a *a !a @a ` | > a.b a..b a-b -a a- A a_b a/b a/b/c a:b a@b a,b / 0s
    1s 30s 1m 2m 1h 1d 30d 50% 100% 200% @daily 10.0.0.0/8 ::/0 https://x.example/a?b=c#d
    postgresql://u:p@h:6432/d job namespace RedriveMetricsAbsent RedriveQueueStalled PATH
    REDRIVE_SLOTS a:b
"""
WORDS = [
    *SIMPLE.split(),
    *(
        "- a",
        "a: b",
        "a #b",
        "'",
        '"',
        "it's",
        "{{ . }}",
        "{% %}",
        "\\",
        "a\nb",
        "\t",
        "  ",
        "",
        "\u00e9",
        "\u202e",
        "\u200b",
        "\ud83d\ude00",
        "0 0 * * *",
        "host=h port=1",
    ),
    *("a" * length for length in (63, 64, 253)),
]

# Of Kubernetes and of jobs, given on as they are: only what is right is drawn.
GIVEN_ON: dict[str, list[Any]] = {
    "nodeAffinity": [{}],
    "podAffinity": [{"preferredDuringSchedulingIgnoredDuringExecution": []}],
    "podAntiAffinity": [{}],
    "configMap": [{"name": "no"}, {"name": "a", "items": [{"key": "1", "path": "on"}]}],
    "csi": [{"driver": "a.b"}],
    "dnsConfig": [{}, {"options": [{"name": "ndots", "value": "2"}]}],
    "downwardAPI": [{"items": []}],
    "emptyDir": [{}, {"sizeLimit": "1Mi"}],
    "ephemeral": [{}],
    "hostPath": [{"path": "/a"}],
    "image": [{"reference": "a:1"}],
    "nfs": [{"server": "a", "path": "/b"}],
    "persistentVolumeClaim": [{"claimName": "yes"}],
    "projected": [{"sources": []}],
    "secret": [{"secretName": "1e3"}],
    "securityContext": [{}, {"runAsNonRoot": True}],
    "targets": [{}, {"mail.*": {"url": "http://a/1e3"}}],
    "startupProbe": [{"exec": {"command": ["true"]}}],
    "livenessProbe": [{"tcpSocket": {"port": 1}}],
    "readinessProbe": [{"httpGet": {"port": "a", "path": "/"}}],
    "lifecycle": [{}],
    "ports": [{"containerPort": 1}],
    "payload": [{}, {"no": "on", "n": 10_000_000}],
    "queues": [
        {},
        {"on": {"owner": "1e3", "objectives": {"dlq_added_5m": 3, "dead_ratio": 0.01}}},
        {"mail/yes": {"objectives": {"dlq_added_5m": 0}}, "*/no": {"owner": "no"}},
    ],
    "extraObjects": [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "{{ .Release.Name }}-x"},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "x"},
            "stringData": {"no": "on"},
        },
    ],
}


@cache
def validator(text: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(
        json.loads(text) | {"definitions": SCHEMA["definitions"]}
    )


def is_valid(schema: dict[str, Any], value: Any) -> bool:
    return validator(json.dumps(schema)).is_valid(value)


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Without references, and with what it says in parts said at once."""
    while "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rsplit("/", 1)[1]]
    for part in schema.get("allOf", []):
        schema = resolved(part) | schema
    return schema


@cache
def words(pattern: str) -> list[str]:
    return [word for word in WORDS if re.search(pattern, word)]


def texts(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    pattern = schema.get("pattern")
    if pattern is None:
        return st.sampled_from(WORDS) | st.text(max_size=20)
    fitting = words(pattern)
    drawn = st.from_regex(pattern, fullmatch=True)
    return st.sampled_from(fitting) | drawn if fitting else drawn


def numbers(schema: dict[str, Any], *, whole: bool) -> st.SearchStrategy[Any]:
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    high = schema.get("maximum", 10**9)
    edges = [low, high, *(n for n in (0, 1, 7, 10**6, 10**9) if low < n < high)]
    drawn: st.SearchStrategy[Any] = st.integers(math.ceil(low), math.floor(high))
    return st.sampled_from(edges) | (drawn if whole else drawn | st.floats(low, high))


def of(schema: dict[str, Any], name: str = "") -> st.SearchStrategy[Any]:
    """What a schema allows, and a little of what it does not say."""
    schema = resolved(schema)
    drawn = _of(schema, name)
    return (
        drawn.filter(lambda value: is_valid(schema, value))
        if _is_narrowed(schema)
        else drawn
    )


def _is_narrowed(schema: dict[str, Any]) -> bool:
    return any(
        word in schema for word in ("not", "allOf", "if", "oneOf", "maxProperties")
    )


def _of(schema: dict[str, Any], name: str) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    if "oneOf" in schema and "type" not in schema:
        return st.one_of([of(choice, name) for choice in schema["oneOf"]])
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of([_of_type(kind, schema, name) for kind in types])


def _of_type(kind: str, schema: dict[str, Any], name: str) -> st.SearchStrategy[Any]:
    match kind:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer" | "number":
            return numbers(schema, whole=kind == "integer")
        case "string":
            return texts(schema)
        case "array":
            # Two objects of one name are the user's own, and Kubernetes says so.
            is_set = schema.get("uniqueItems") or name == "extraObjects"
            unique = json.dumps if is_set else None
            return st.lists(of(schema["items"], name), max_size=2, unique_by=unique)
    return objects(schema, name)


def objects(schema: dict[str, Any], name: str) -> st.SearchStrategy[Any]:
    if "properties" in schema:
        needed = schema.get("required", [])
        of_each = {key: of(inner, key) for key, inner in schema["properties"].items()}
        optional = {key: drawn for key, drawn in of_each.items() if key not in needed}
        if schema.get("maxProperties") == 2:  # a volume: its name and one source
            source = st.sampled_from(sorted(optional))
            return source.flatmap(
                lambda key: st.fixed_dictionaries(
                    {"name": of_each["name"], key: optional[key]}
                )
            )
        return st.fixed_dictionaries(
            {key: of_each[key] for key in needed}, optional=optional
        )
    if "patternProperties" in schema and name not in GIVEN_ON:
        pattern, inner = next(iter(schema["patternProperties"].items()))
        if re.fullmatch(r"\^\([A-Za-z|]+\)\$", pattern):  # a few names, one drawn
            names = st.sampled_from(pattern[2:-2].split("|"))
            one = names.flatmap(
                lambda key: st.fixed_dictionaries({key: of(inner, key)})
            )
            return one | st.just({})
        names = of({"type": "string", "pattern": pattern})
        return st.dictionaries(names, of(inner), max_size=2)
    if isinstance(schema.get("additionalProperties"), dict) and name not in GIVEN_ON:
        return st.just({})
    return st.sampled_from(GIVEN_ON[name])


def leaves(schema: dict[str, Any], path: Path = ()) -> Iterator[Path]:
    properties = resolved(schema).get("properties")
    if properties is None:
        yield path
    for name, inner in (properties or {}).items():
        yield from leaves(inner, (*path, name))


def schema_at(path: Path, schema: dict[str, Any] = SCHEMA) -> dict[str, Any]:
    for name in path:
        schema = resolved(resolved(schema)["properties"][name])
    return schema


def put(values: Values, path: Path, value: Any) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


LEAVES = [p for p in leaves(SCHEMA) if p[0] not in {"workers", "enabled"}]
POOL = SCHEMA["definitions"]["pool"]
POOL_LEAVES = list(leaves(POOL))
SWITCHES = [path for path in LEAVES if path[-1] == "enabled" and path[0] != "postgres"]
ANYTHING = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([*WORDS, [], {}, ["a"], {"a": 1}])
)
CONSOLE = json.dumps(
    {
        "enabled": True,
        "url": "https://redrive.example",
        "logins": {
            role: {"existingSecret": role}
            for role in ("viewer", "operator", "approver")
        },
        "tokens": {"existingSecret": "tokens"},
        "sessionKey": {"existingSecret": "key"},
        "httpRoute": {"parentRefs": [{"name": "gateway"}]},
    }
)
POOL_NAMES = st.sampled_from(["no", "on", "null", "mail", "n", "a-1", "e" * 20])


@st.composite
def values(draw: st.DrawFn) -> Values:
    """Values for the chart: most are right, some are not."""
    drawn: Values = {}
    kind = draw(st.sampled_from(["secrets", "secrets", "secrets", "trial", "urls"]))
    put(
        drawn,
        ("database",),
        {login: dict(of_login) for login, of_login in LOGINS.items()},
    )
    if kind == "trial":
        drawn = {"postgres": {"trial": {"enabled": True}}}
    elif kind == "urls":
        for login in LOGINS:
            put(drawn, ("database", login), {"url": "postgresql://u:p@h:6432/d"})
    for path in draw(st.lists(st.sampled_from(SWITCHES), max_size=6, unique=True)):
        put(drawn, path, True)
    if draw(st.booleans()):
        put(drawn, ("redrive", "automatic", "filter"), {"queue": ["mail"]})
    if draw(st.booleans()):
        put(drawn, ("console",), json.loads(CONSOLE))
    for path in draw(st.lists(st.sampled_from(LEAVES), max_size=6, unique=True)):
        put(drawn, path, draw(of(schema_at(path), path[-1])))
    for name in draw(st.lists(POOL_NAMES, max_size=2, unique=True)):
        pool: Values = {"handlers": "app.jobs:jobs"}
        for path in draw(
            st.lists(st.sampled_from(POOL_LEAVES), max_size=6, unique=True)
        ):
            put(pool, path, draw(of(schema_at(path, POOL), path[-1])))
        put(drawn, ("workers", name), pool)
    if draw(st.integers(0, 9)) == 7:  # Hypothesis is fond of 0
        put(drawn, draw(st.sampled_from(LEAVES)), draw(ANYTHING))
    return drawn


# --- what came of them ------------------------------------------------------------------------

BY_THE_SCHEMA = "values don't meet the specifications of the schema(s)"
OUR_OWN = re.compile(
    r"execution error at \(redrive/templates/[a-z/-]+\.yaml:\d+:\d+\): (\w+)[. :]"
)
LABEL = re.compile(r"^(|[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)$")
NAME = re.compile(r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
LEFT_OVERS = ("<no value>", "%!", "<nil>", "map[")


def faults_of_a_refusal(said: str) -> Iterator[str]:
    """Nothing, if it names the value to change."""
    ours = OUR_OWN.search(said)
    by_the_schema = BY_THE_SCHEMA in said and re.search(r"- at '(/[^']*)?': ", said)
    if not by_the_schema and not (ours and ours[1] in SCHEMA["properties"]):
        yield said


def faults_of(release: Release, version: str) -> Iterator[str]:
    """What is wrong with what was installed.

    Raises:
        ValidationError: an object is not as the strict schema of its kind has it.
    """
    yield from (rest for rest in LEFT_OVERS if rest in release.text)
    if len(release.names()) != len(release.objects):
        yield "two objects of one name"
    for found in release.objects:
        yield from faults(found, version)


def faults(found: Values, version: str) -> Iterator[str]:
    """What is wrong with an object, beyond what the strict schema of its kind raises."""
    if found["apiVersion"] in CUSTOM:
        jsonschema.validate(found, CUSTOM[found["apiVersion"]][found["kind"]])
    else:
        utils.validate(found, version, strict=True)
    longest = 253 if found["kind"] == "ServiceAccount" else 63
    if (
        not NAME.match(found["metadata"]["name"])
        or len(found["metadata"]["name"]) > longest
    ):
        yield f"name {found['metadata']['name']}"
    yield from _inner_faults(found, ())


def _inner_faults(value: Any, path: Path) -> Iterator[str]:
    if isinstance(value, dict):
        if path and path[-1] in {"labels", "matchLabels"} and path[0] != "data":
            yield from (
                f"{path}: {k}={v!r}" for k, v in value.items() if not LABEL.match(v)
            )
        for key, inner in value.items():
            yield from _inner_faults(inner, (*path, key))
    elif isinstance(value, list):
        if path[-1] == "topologySpreadConstraints":
            yield from _faults_of_spread(value)
        for one in ("name", "mountPath"):
            named = [i[one] for i in value if isinstance(i, dict) and one in i]
            if path[-1] in {"env", "volumes", "volumeMounts"} and (
                one != "name" or path[-1] != "volumeMounts"
            ):
                yield from (
                    f"{path}: {n} twice" for n in set(named) if named.count(n) > 1
                )
        for inner in value:
            yield from _inner_faults(inner, path)
    elif isinstance(value, float) and value != int(value) and "resources" not in path:
        yield f"{path}: {value}"


def _faults_of_spread(constraints: list[Values]) -> Iterator[str]:
    """What the API server refuses and no schema says."""
    keys = [(one["topologyKey"], one["whenUnsatisfiable"]) for one in constraints]
    yield from (f"{key} twice" for key in set(keys) if keys.count(key) > 1)
    yield from (
        f"{one}: no selector" for one in constraints if "labelSelector" not in one
    )


def closed(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": list(required),
    }


def listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


ANY = {"type": "object"}
TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
DURATION = {"type": "string", "pattern": "^[0-9]+(s|m|h)$"}
RELABELING = closed(
    action=TEXT,
    sourceLabels=listed(TEXT) | {"minItems": 0},
    separator=TEXT,
    targetLabel=TEXT,
    regex=TEXT,
    modulus={"type": "integer"},
    replacement=TEXT,
)
ENDPOINT = closed(
    "port",
    port=TEXT,
    path=TEXT,
    interval=DURATION,
    scrapeTimeout=DURATION,
    relabelings=listed(RELABELING),
    metricRelabelings=listed(RELABELING),
)
TRIGGER = closed(
    "type",
    "metadata",
    type={"enum": ["prometheus", "postgresql"]},
    metricType={"const": "Value"},
    authenticationRef=closed("name", name=TEXT),
    metadata={"type": "object", "additionalProperties": TEXT},
)
RULE = closed(
    "expr",
    record=TEXT,
    alert=TEXT,
    expr=TEXT,
    labels={"type": "object", "additionalProperties": TEXT},
    annotations={"type": "object", "additionalProperties": TEXT},
    keep_firing_for=DURATION,
    **{"for": DURATION},
)


def kind(spec: dict[str, Any]) -> dict[str, Any]:
    return closed("spec", apiVersion=TEXT, kind=TEXT, metadata=ANY, spec=spec)


# The parts of their definitions that the chart uses; all are checked on a real cluster.
CUSTOM: dict[str, dict[str, Any]] = {
    "monitoring.coreos.com/v1": {
        "PodMonitor": kind(
            closed(
                "selector",
                "podMetricsEndpoints",
                selector=ANY,
                podTargetLabels=listed(TEXT),
                sampleLimit=COUNT,
                podMetricsEndpoints=listed(ENDPOINT),
            )
        ),
        "ServiceMonitor": kind(
            closed(
                "selector",
                "endpoints",
                selector=ANY,
                sampleLimit=COUNT,
                endpoints=listed(ENDPOINT),
            )
        ),
        "PrometheusRule": kind(
            closed(
                "groups",
                groups=listed(
                    closed(
                        "name",
                        "rules",
                        name=TEXT,
                        interval=DURATION,
                        rules=listed(RULE),
                    )
                ),
            )
        ),
    },
    "gateway.networking.k8s.io/v1": {
        "HTTPRoute": kind(
            closed(
                "parentRefs",
                parentRefs=listed(
                    closed("name", name=TEXT, namespace=TEXT, sectionName=TEXT)
                ),
                hostnames=listed(TEXT),
                rules=listed(
                    closed(backendRefs=listed(closed("name", name=TEXT, port=COUNT)))
                ),
            )
        )
    },
    "keda.sh/v1alpha1": {
        "ScaledObject": kind(
            closed(
                "scaleTargetRef",
                "triggers",
                scaleTargetRef=closed("name", name=TEXT),
                minReplicaCount=COUNT,
                maxReplicaCount=COUNT,
                pollingInterval=COUNT,
                cooldownPeriod=COUNT,
                fallback=closed(failureThreshold=COUNT, replicas=COUNT, behavior=TEXT),
                advanced=ANY,
                triggers=listed(TRIGGER),
            )
        ),
        "TriggerAuthentication": kind(
            closed(
                secretTargetRef=listed(
                    closed(
                        "parameter", "name", "key", parameter=TEXT, name=TEXT, key=TEXT
                    )
                )
            )
        ),
    },
}
