"""The order file and the handlers that read it."""

import contextlib
import runpy
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from redrive.extras.demo import shop


def test_the_order_file_carries_dirt_of_every_sort():
    lines = shop.orders()
    numbers = Counter(line["order"].strip() for line in lines)

    assert len(lines) == 200
    assert "order" in lines[0]  # and not \ufefforder
    assert [n for n in numbers.values() if n > 1] == [2]
    assert sum("," in line["amount"] for line in lines) == 9
    assert any(line["currency"] == "USD " for line in lines)
    assert sum(not line["email"].strip() for line in lines) == 4


def release(number: str, home: Path) -> dict[str, Any]:
    """Return what a release of handlers.py defines."""
    file = home / "handlers.py"
    file.write_text(shop.handlers(number))
    return runpy.run_path(str(file))


def test_the_control_totals_are_what_the_handlers_make_of_the_file(
    database, tmp_path: Path
):
    code = release("1.1", tmp_path)
    payments: dict[str, Any] = {}
    for line in shop.orders():
        with contextlib.suppress(ValidationError):
            payment = code["Payment"].model_validate(line)
            payments[payment.order] = payment
    sums: Counter[str] = Counter()
    for payment in payments.values():
        if payment.currency in code["ACCOUNTS"]:
            sums[payment.currency] += int(code["read_amount"](payment.amount) * 100)
    database.conn.execute(code["LEDGER"])

    accounts = list(shop.accounts(database.conn))

    assert {a.currency: a.expected_amount * 100 for a in accounts} == dict(sums)
    assert not any(a.agrees for a in accounts)


def test_release_1_0_has_the_bug_that_1_1_mends(tmp_path: Path):
    first, second = (release(number, tmp_path) for number in ("1.0", "1.1"))

    assert first["read_amount"]("1249.50") == Decimal("1249.50")
    with pytest.raises(IndexError):
        first["read_amount"]("1249,50")
    assert second["read_amount"]("1249,50") == Decimal("1249.50")
