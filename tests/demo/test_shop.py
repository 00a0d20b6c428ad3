"""The order file and the handlers that read it."""

from collections import Counter
from decimal import Decimal

import pytest
from pydantic import ValidationError

from redrive import GiveUp
from redrive.extras.demo import handlers, release_1_0, shop


@pytest.mark.parametrize("text", ["1249.50", "1,249.50", "1249,50", "1.249,50"])
def test_an_amount_is_read_however_it_is_written(text: str):
    assert Decimal("1249.50") == handlers.read_amount(text)


@pytest.mark.parametrize(
    "text", ["", "12", "1,249", "1.249.50.1", "-3.00", "12.5", "a lot", "1249.50 "]
)
def test_an_amount_that_is_not_understood_is_not_guessed(text: str):
    with pytest.raises(GiveUp):
        handlers.read_amount(text)


def test_the_order_file_carries_dirt_of_every_sort():
    lines = shop.orders()
    numbers = Counter(line["order"].strip() for line in lines)

    assert len(lines) == 200
    assert "order" in lines[0]  # and not \ufefforder
    assert [n for n in numbers.values() if n > 1] == [2]
    assert sum("," in line["amount"] for line in lines) == 9
    assert any(line["currency"] == "USD " for line in lines)
    assert sum(not line["email"].strip() for line in lines) == 4


def test_the_control_totals_are_what_the_handlers_make_of_the_file(database):
    payments: dict[str, handlers.Payment] = {}
    for line in shop.orders():
        try:
            payment = handlers.Payment.model_validate(line)
        except ValidationError:
            continue
        payments[payment.order] = payment
    sums: Counter[str] = Counter()
    for payment in payments.values():
        if payment.currency in handlers.CURRENCIES:
            sums[payment.currency] += int(handlers.read_amount(payment.amount) * 100)
    database.conn.execute(shop.SCHEMA)

    accounts = list(shop.accounts(database.conn))

    assert {a.currency: a.expected_amount * 100 for a in accounts} == dict(sums)
    assert not any(a.agrees for a in accounts)


def test_release_1_0_has_the_bug_that_1_1_mends():
    assert Decimal("1249.50") == release_1_0.read_amount("1249.50")
    with pytest.raises(AttributeError):
        release_1_0.read_amount("1249,50")


def test_both_releases_handle_the_same_kinds():
    assert {h.kind: h.policy for h in handlers.jobs} == {
        h.kind: h.policy for h in release_1_0.jobs
    }
