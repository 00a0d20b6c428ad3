"""What a job may hold: everything else is refused with the path of the fault, before anything is
sent.
"""

import datetime as dt
import decimal
import json
import math
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from redrive import InvalidJob
from redrive.rules.payloads.job_fields import OPTIONS, check_job
from redrive.rules.payloads.limits import MAX_DEPTH, MAX_PAYLOAD_BYTES, encode_object


def nested(levels: int, inner: Any = None) -> Any:
    value = inner
    for n in range(levels):
        value = {"a": value} if n % 2 else [value]
    return {"n": value}


def circular() -> Any:
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value


REFUSED = {
    "nan": ({"a": [math.nan]}, "payload.a[0]", "finite"),
    "infinity": ({"a": -math.inf}, "payload.a", "finite"),
    "huge integer": ({"a": 10**400}, "payload.a", "range"),
    "5000 digits": ({"a": {"b": 10**5000}}, "payload.a.b", "range"),
    "negative huge integer": ({"a": -(10**309)}, "payload.a", "range"),
    "NUL": ({"a": "x\0"}, "payload.a", "NUL"),
    "NUL in a key": ({"a\0": 1}, "payload.(key)", "NUL"),
    "surrogate": ({"a": ["\ud800"]}, "payload.a[0]", "surrogate"),
    "surrogate in a key": ({"\udfff": 1}, "payload.(key)", "surrogate"),
    "integer key": ({"a": {1: 2}}, "payload.a", "key of type int"),
    "None key": ({None: 2}, "payload", "key of type NoneType"),
    "tuple key": ({(1, 2): 2}, "payload", "key of type tuple"),
    "Decimal": ({"a": decimal.Decimal(1)}, "payload.a", "Decimal is not JSON"),
    "bytes": ({"a": b"x"}, "payload.a", "bytes is not JSON"),
    "set": ({"a": {1}}, "payload.a", "set is not JSON"),
    "datetime": ({"a": datetime.now(UTC)}, "payload.a", "datetime is not JSON"),
    "timedelta": ({"a": timedelta(1)}, "payload.a", "timedelta is not JSON"),
    "uuid": ({"a": uuid.uuid4()}, "payload.a", "UUID is not JSON"),
    "object": ({"a": SimpleNamespace()}, "payload.a", "SimpleNamespace is not JSON"),
    "function": ({"a": print}, "payload.a", "is not JSON"),
    "generator": ({"a": (n for n in ())}, "payload.a", "generator is not JSON"),
    "complex": ({"a": 1j}, "payload.a", "complex is not JSON"),
    "circular": (circular(), "payload", "deeper than 64"),
    "65 deep": (nested(65), "payload", "deeper than 64"),
    "100000 deep": (nested(100_000), "payload", "deeper than 64"),
    "too big": ({"a": "x" * MAX_PAYLOAD_BYTES}, "payload", "at most 262144"),
    "too big in bytes": (
        {"a": "ü" * (MAX_PAYLOAD_BYTES // 2)},
        "payload",
        "at most 262144",
    ),
    "list": ([1], "payload", "must be an object, not list"),
    "text": ("{}", "payload", "must be an object, not str"),
    "number": (7, "payload", "must be an object, not int"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_payload_cannot_hold_is_refused_with_its_path(name: str):
    payload, path, rule = REFUSED[name]
    with pytest.raises(InvalidJob) as refused:
        check_job({"kind": "kind", "payload": payload})

    assert refused.value.path == path
    assert rule in refused.value.rule
    assert len(str(refused.value)) < 200


def test_what_just_fits_is_taken():
    at_the_limit = {"a": "x" * (MAX_PAYLOAD_BYTES - len('{"a":""}'))}
    taken = [
        at_the_limit,
        nested(MAX_DEPTH - 1),
        {"a": 10**308},
        {"a": (1, 2)},
        {"": ""},
        {"a": "\U0001f600"},
        {},
    ]

    for payload in taken:
        assert json.loads(
            check_job({"kind": "kind", "payload": payload})["payload"]
        ) == json.loads(json.dumps(payload))


FIELDS = {
    "kind": [
        *("", "1a", "a" * 64, "a b", "a'", "%I", "é", "a\n", "\u202ea", "аdmin"),
        *(None, 7, b"a"),
    ],
    "queue": ["", "a;drop", "a" * 64, "a\n", None, 7],
    "idempotency_key": ["", "x" * 256, "a\0", "\ud800", 7, b"k", "$unique:0"],
    "delay": [-1, 1e12, "", "10m", timedelta(-1)],
    "unique_for": [0, -1, 1e12, "1h"],
    "unique_by": ["customer", [], ["a"] * 17, [7], [""], ["a\0"], {"a": 1}],
    "on_conflict": ["", "update", 7, ["skip"]],
    "batch": [0, -1, "1", True, 2**63],
    "ordering_key": ["", "x" * 256, "a\0", 7],
    "tenant": ["", "x" * 256, "\udc00", 7],
    "priority": [-1001, 1001, 1.5, "1", True, None, 2**70],
    "max_attempts": [0, -1, 100_001, 1.0, "3", True],
    "run_at": [
        datetime(2026, 1, 1),
        dt.date(2026, 1, 1),
        "2026-01-01",
        0,
        datetime(1999, 12, 31, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ],
    "expires_in": [0, -1, 1e12, math.inf, math.nan, timedelta(0), timedelta.max],
    "headers": [{"a": math.nan}, {"a": "x" * 9_000}, {"a": "\0"}, {1: 2}],
}


@pytest.mark.parametrize(
    ("field", "value"),
    [(f, v) for f, values in FIELDS.items() for v in values],
    ids=repr,
)
def test_a_field_out_of_its_range_is_refused_by_name(field: str, value: Any):
    with pytest.raises(InvalidJob) as refused:
        check_job({"kind": "kind", field: value})

    assert refused.value.path.partition(".")[0] == field


REFUSED_TOGETHER: dict[str, dict[str, Any]] = {
    "delay": {"delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)},
    "unique_for": {"unique_for": 1, "idempotency_key": "k"},
    "unique_by": {"unique_by": ["a"]},
    "on_conflict": {"on_conflict": "skip"},
}


@pytest.mark.parametrize("field", REFUSED_TOGETHER)
def test_fields_that_do_not_go_together_are_refused_by_name(field: str):
    with pytest.raises(InvalidJob) as refused:
        check_job({"kind": "kind"} | REFUSED_TOGETHER[field])

    assert refused.value.path == field


def test_a_job_of_a_batch_cannot_be_replaced():
    job = {"kind": "kind", "unique_for": timedelta(hours=1), "unique_by": ("a", "b")}

    assert check_job(job | {"batch": 1})["unique_by"] == ["a", "b"]
    assert (
        check_job(job | {"on_conflict": "replace", "delay": timedelta(0)})["delay"] == 0
    )
    with pytest.raises(InvalidJob, match="on_conflict: a job of a batch"):
        check_job(job | {"on_conflict": "replace", "batch": 1})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4))
def test_what_is_taken_reads_back_the_same_on_every_reader(payload: dict[str, Any]):
    try:
        text = encode_object("payload", payload, MAX_PAYLOAD_BYTES)
    except InvalidJob:
        return

    assert json.loads(text) == payload
    assert msgspec.json.decode(text) == payload
    text.encode()


class Order(BaseModel):
    n: int
    at: datetime
    secret: SecretStr


def test_a_model_is_written_as_its_json():
    order = Order(n=1, at=datetime(2026, 1, 1, tzinfo=UTC), secret=SecretStr("x"))

    assert json.loads(check_job({"kind": "kind", "payload": order})["payload"]) == {
        "n": 1,
        "at": "2026-01-01T00:00:00Z",
        "secret": "**********",
    }


@pytest.mark.parametrize("option", sorted(OPTIONS.keys() - {"queue", "priority"}))
def test_an_option_that_is_none_is_one_that_was_not_given(option: str):
    """As `enqueue(..., run_at=due if due else None)` says it."""
    assert check_job({"kind": "kind", option: None}) == check_job({"kind": "kind"})
