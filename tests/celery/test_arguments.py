"""Arguments of tasks keep their values and types on the way through the database."""

import json
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from redrive.celery.arguments import Arguments, restored, stored
from redrive.celery.records import (
    Sent,
    as_queue,
    encode,
    failure_of,
    kind_of,
    outcome,
    source_lines,
)
from redrive.errors import InvalidJob
from redrive.rules.model import Category, Failure
from redrive.rules.payloads.limits import check_name


class Money:
    def __repr__(self) -> str:
        return "Money(token='hush-4711-secret')"


def through_the_database(args: list[Any], kwargs: dict[str, Any]) -> Arguments:
    return restored(json.loads(json.dumps(stored(Arguments(args, kwargs)))))


def test_what_json_of_celery_holds_comes_back():
    args = [17, None, "ä", [1.5, {"a": True}], {}]
    kwargs = {
        "at": datetime(2026, 3, 1, 12, tzinfo=UTC),
        "day": date(2026, 3, 1),
        "amount": Decimal("49.90"),
        "id": uuid.UUID(int=17),
        "file": b"\x00\xff",
    }

    assert through_the_database(args, kwargs) == (args, kwargs)


def test_an_object_is_described_and_not_sent():
    payload = stored(Arguments([{"paid": [1, Money()]}], {}))

    assert payload["args"][0]["paid"][1]["$python"].endswith("Money")
    assert "hush" not in json.dumps(payload)
    with pytest.raises(InvalidJob, match=r"payload\.args\[0\]\.paid\[1\]: JSON cannot"):
        restored(payload)


@pytest.mark.parametrize("value", ["x" * 300_000, "a\0b", float("nan"), 10**400])
def test_what_postgres_cannot_hold_is_described(value: Any):
    payload = stored(Arguments([value], {}))

    assert "all arguments" in payload["args"]["$python"]
    with pytest.raises(InvalidJob):
        restored(payload)


def test_a_list_that_contains_itself_is_described():
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(InvalidJob):
        restored(stored(Arguments([endless], {})))


@pytest.mark.parametrize("payload", [{"args": {}}, {"kwargs": []}, {"args": "abc"}])
def test_a_payload_that_was_edited_wrongly_is_refused(payload: dict[str, Any]):
    with pytest.raises(InvalidJob, match="a list as args"):
        restored(payload)


@pytest.mark.parametrize("name", ["shop.tasks.Charge", "9", "ünï", "a" * 200, ""])
def test_names_are_valid(name: str):
    assert check_name("kind", kind_of(name))
    assert check_name("queue", as_queue(name))


def test_names_keep_their_upper_case():
    assert kind_of("shop.tasks.Charge") == "celery.shop.tasks.Charge"
    assert as_queue("Mail") == "Mail"


def test_long_names_stay_apart():
    assert kind_of("a" * 80 + "b") != kind_of("a" * 80 + "c")


def test_secrets_of_arguments_and_environment_are_hidden(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("SHOP_API_KEY", "hush-4711-secret")
    given = Arguments([], {"password": "hush-0815-secret"})
    error = ValueError("hush-4711-secret refused hush-0815-secret")

    failure = failure_of(error, "shop.charge", given)

    assert failure.message.startswith("[")
    assert "hush" not in json.dumps(failure.record())


@pytest.mark.parametrize(
    ("setting", "lines"), [("1", ["raise ValueError"]), ("0", None), ("no", None)]
)
def test_a_frame_has_as_many_lines_of_source_as_are_set(
    setting: str, lines: list[str] | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("REDRIVE_SOURCE_LINES", setting)
    source_lines.cache_clear()
    try:
        raise ValueError
    except ValueError as error:
        failure = failure_of(error, "shop.charge", Arguments([], {}))

    source_lines.cache_clear()
    assert failure.detail["stack"][-1].get("source") == lines


@pytest.mark.parametrize("text", ["ä", "\N{GRINNING FACE}", '"', "a"])
def test_the_outcome_of_any_failure_fits_into_a_result(text: str):
    frame = {"file": text * 200, "function": text * 200, "module": text * 200}
    failure = Failure(
        text * 200, text * 4096, Category.BUG, "f", {"stack": [frame] * 30}
    )

    record = outcome(Sent(2**62, 10, "celery", "0" * 32), failure)

    assert record.outcome is not None
    assert len(encode(record.outcome["payload"])) < 8_192
