"""What is compared of a job, and that its content cannot be read out of it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.rules.payloads.facts import MAX_FIELDS, UNREAD, facts_of, type_of


def of(payload: Any, **options: Any) -> dict[str, Any]:
    found = facts_of(payload, {}, None, **options)
    return {name: mark for name, mark in found.items() if name != "tenant"}


def test_texts_are_digests_that_are_equal_where_the_texts_are() -> None:
    texts: dict[str, str] = {}
    found = of({"a": "XAU", "b": {"c": "XAU"}, "d": "EUR"}, texts=texts)

    assert found["payload.a"] == found["payload.b.c"] != found["payload.d"]
    assert "XAU" not in json.dumps(found)
    assert texts[found["payload.a"]] == "XAU"


@pytest.mark.parametrize(
    ("value", "mark", "type_"),
    [
        (3, 3, "number"),
        (0.5, 0.5, "number"),
        (True, True, "boolean"),
        (None, None, "null"),
        (4111111111111111, "?secret", "secret"),
        (10**12, "?number", "number"),
        ("2026-11-22", "?time", "text"),
        ("2026-11-22T10:00:00Z", "?time", "text"),
        ("x" * 65, "?text", "text"),
        ("Bearer abcdefghijklmnop0123456789", "?secret", "secret"),
    ],
)
def test_what_is_not_compared_says_what_it_is(
    value: Any, mark: Any, type_: str
) -> None:
    found = of({"a": value})["payload.a"]
    assert (found, type_of(found)) == (mark, type_)


def test_secrets_are_hidden_by_name_declaration_and_value() -> None:
    payload = {
        "password": "canary-1",
        "pin": 4711,
        "note": "canary-3",
        "quoted": "canary-1",
        "fields": {"name": "password", "value": "canary-2"},
    }
    texts: dict[str, str] = {}
    found = of(payload, declared={"note"}, secrets={"canary-1"}, texts=texts)

    for field in ("password", "pin", "note", "quoted", "fields.value"):
        assert found[f"payload.{field}"] == "?secret"
    assert "canary" not in str(texts)


def test_lists_are_compared_by_length_and_maps_by_id_not_at_all() -> None:
    found = of(
        {"items": [{"sku": "s"}] * 3, "by_id": {"c12345": 1, "ann@example.com": 2}}
    )
    assert found == {"payload.items[]": 3}


def test_headers_that_are_of_one_job_are_left_out() -> None:
    headers = {"traceparent": "00-1", "$redrive": "2.", "source": "web", "version": 2}
    found = facts_of({}, headers, "acme")
    assert set(found) == {"tenant", "header.source"}
    assert "acme" not in str(found)


def test_a_payload_that_is_not_read_says_so() -> None:
    assert of(None) == {"payload": UNREAD}


_json = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=True) | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=30)
@given(st.dictionaries(st.text() | st.from_regex(r"[a-z]{1,5}", fullmatch=True), _json))
def test_any_payload_comes_to_a_few_small_marks(payload: dict[str, Any]) -> None:
    found = of(payload)
    assert len(found) <= MAX_FIELDS
    assert len(json.dumps(found, allow_nan=False)) < 64 * (4 * 42 + 40)


def test_of_a_wide_payload_the_first_fields_are_kept() -> None:
    wide = {f"f{n}": {f"g{m}": 1 for m in range(50)} for n in range(50)}
    assert len(of(wide)) == MAX_FIELDS - 1  # and the tenant
