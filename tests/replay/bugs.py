"""Seeded bugs in the handlers of a shop, each with its fix."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

HEAD = '''\
"""Jobs of a shop."""

import base64
import csv
import io
import json
import math
import random
import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from redrive import Handlers, Policy, Retry

jobs = Handlers()
RATES = {"EUR": Decimal("1"), "USD": Decimal("0.9")}
'''


@dataclass(frozen=True)
class Bug:
    """A handler that fails.

    `source` is its function; replacing `wrong` by `right` fixes it.
    """

    kind: str
    payload: dict[str, Any]
    source: str
    wrong: str
    right: str
    options: dict[str, Any] = field(default_factory=dict)
    attempts: int = 1

    @property
    def special(self) -> bool:
        """Whether it depends on the circumstances of its attempt."""
        return self.kind.startswith("offer.") or "placed" in self.payload

    def handler(self) -> str:
        """Its handler, as a part of the module."""
        decorator = (
            f"@jobs.handle({self.kind!r}, policy=Policy(max_attempts={self.attempts}))"
        )
        head, _, function = f"\n\n{self.source}".rpartition("\n\n")
        return f"{head}\n\n{decorator}\n{function.strip()}\n"


BUGS = [
    Bug(
        "order.address",
        {"name": "Ada"},
        'def address(order):\n    return order["street"] + ", " + order["name"]',
        'order["street"]',
        'order.get("street", "unknown")',
    ),
    Bug(
        "order.coupon",
        {"coupon": None},
        'def coupon(order):\n    return order["coupon"].upper()',
        'order["coupon"].upper()',
        '(order["coupon"] or "").upper()',
    ),
    Bug(
        "order.last_line",
        {"lines": ["a", "b"]},
        (
            'def last_line(order):\n    lines = order["lines"]\n'
            "    return lines[len(lines)]"
        ),
        "lines[len(lines)]",
        "lines[len(lines) - 1]",
    ),
    Bug(
        "order.average",
        {"amounts": []},
        (
            'def average(order):\n    amounts = order["amounts"]\n'
            "    return sum(amounts) / len(amounts)"
        ),
        "/ len(amounts)",
        "/ max(1, len(amounts))",
    ),
    Bug(
        "price.parse",
        {"price": "12,50"},
        'def parse(order):\n    return Decimal(order["price"])',
        'Decimal(order["price"])',
        'Decimal(order["price"].replace(",", "."))',
    ),
    Bug(
        "price.discount",
        {"price": "9.90", "discount": 0.1},
        (
            'def discount(order):\n    price = Decimal(order["price"])\n'
            '    return price * (1 - order["discount"])'
        ),
        '(1 - order["discount"])',
        '(1 - Decimal(str(order["discount"])))',
    ),
    Bug(
        "price.convert",
        {"price": "9.90", "currency": "JPY"},
        (
            "def rate(currency):\n    return RATES[currency]\n\n\n"
            "def convert(order):\n"
            '    return Decimal(order["price"]) * rate(order["currency"])'
        ),
        "RATES[currency]",
        'RATES.get(currency, Decimal("1"))',
    ),
    Bug(
        "price.round",
        {"price": "9.9"},
        'def round_price(order):\n    return round(order["price"], 2)',
        'round(order["price"], 2)',
        'round(float(order["price"]), 2)',
    ),
    Bug(
        "stock.root",
        {"variance": -1e-9},
        'def root(stock):\n    return math.sqrt(stock["variance"])',
        'stock["variance"])',
        'max(0.0, stock["variance"]))',
    ),
    Bug(
        "stock.infinite",
        {"rate": 0.0},
        'def infinite(stock):\n    return int(float("inf") if not stock["rate"] else 1.0)',
        'float("inf") if not stock["rate"]',
        '0.0 if not stock["rate"]',
    ),
    Bug(
        "mail.encode",
        {"name": "Jörg"},
        'def encode(mail):\n    return mail["name"].encode("ascii")',
        '"ascii"',
        '"utf-8"',
    ),
    Bug(
        "mail.decode",
        {"raw": "SsO2cmf/"},
        (
            "def decode(mail):\n"
            '    raw = base64.b64decode(mail["raw"])\n'
            '    return raw.decode("utf-8")'
        ),
        'decode("utf-8")',
        'decode("utf-8", "replace")',
    ),
    Bug(
        "mail.padding",
        {"raw": "YWRhLg"},
        'def padding(mail):\n    return base64.b64decode(mail["raw"])',
        'mail["raw"])',
        'mail["raw"] + "==")',
    ),
    Bug(
        "mail.surname",
        {"name": "Plato"},
        'def surname(mail):\n    first, last = mail["name"].split()\n    return last',
        'first, last = mail["name"].split()',
        'last = mail["name"].split()[-1]',
    ),
    Bug(
        "mail.template",
        {"template": "Dear {title}", "name": "Ada"},
        'def template(mail):\n    return mail["template"].format(name=mail["name"])',
        'format(name=mail["name"])',
        'format_map(Counter(name=mail["name"]))',
    ),
    Bug(
        "mail.match",
        {"subject": "an offer"},
        (
            "def match(mail):\n"
            '    found = re.match(r"order (\\d+)", mail["subject"])\n'
            "    return found.group(1)"
        ),
        "found.group(1)",
        "found and found.group(1)",
    ),
    Bug(
        "mail.port",
        {"url": "http://shop:eighty/"},
        'def port(mail):\n    url = urlsplit(mail["url"])\n    return url.port',
        "url.port",
        "url.hostname",
    ),
    Bug(
        "report.columns",
        {"file": "a;b\n1;2\n3\n"},
        (
            "def columns(report):\n"
            '    rows = csv.reader(io.StringIO(report["file"]), delimiter=";")\n'
            "    return [row[1] for row in rows]"
        ),
        "for row in rows]",
        "for row in rows if len(row) > 1]",
    ),
    Bug(
        "report.embedded",
        {"body": "{'a': 1}"},
        'def embedded(report):\n    return json.loads(report["body"])',
        'json.loads(report["body"])',
        'json.loads(report["body"].replace("\'", \'"\'))',
    ),
    Bug(
        "report.sort",
        {"rows": [{"n": 2}, {"n": None}]},
        (
            "def sort(report):\n"
            '    return sorted(report["rows"], key=lambda row: row["n"])'
        ),
        'key=lambda row: row["n"]',
        'key=lambda row: row["n"] or 0',
    ),
    Bug(
        "report.mutate",
        {"seen": {"a": 1, "b": 2}},
        (
            'def mutate(report):\n    seen = report["seen"]\n'
            "    for name in seen:\n        seen.pop(name)"
        ),
        "for name in seen:",
        "for name in list(seen):",
    ),
    Bug(
        "report.steps",
        {"points": [1, 1, 2]},
        (
            "def steps(report):\n    found = []\n"
            '    for before, after in pairwise(report["points"]):\n'
            "        found.append(1 / (after - before))\n    return found"
        ),
        "(after - before))",
        "(after - before or 1))",
    ),
    Bug(
        "report.depth",
        {"tree": {"parent": "root"}},
        (
            "def depth(node, n=0):\n"
            '    return depth(node["parent"], n + 1) if node["parent"] else n\n\n\n'
            'def tree(report):\n    return depth(report["tree"])'
        ),
        'if node["parent"]',
        "if isinstance(node, dict)",
    ),
    Bug(
        "ship.compare",
        {"due": "2030-01-01T12:00:00"},
        (
            "def compare(parcel):\n"
            '    due = datetime.fromisoformat(parcel["due"])\n'
            "    return due < datetime.now(UTC)"
        ),
        'fromisoformat(parcel["due"])',
        'fromisoformat(parcel["due"]).replace(tzinfo=UTC)',
    ),
    Bug(
        "ship.zone",
        {"zone": "Europe/Bonn"},
        'def zone(parcel):\n    return ZoneInfo(parcel["zone"])',
        'parcel["zone"])',
        'parcel["zone"].replace("Bonn", "Berlin"))',
    ),
    Bug(
        "ship.next_year",
        {"day": "2024-02-29"},
        (
            "def next_year(parcel):\n"
            '    day = date.fromisoformat(parcel["day"])\n'
            "    return day.replace(year=day.year + 1)"
        ),
        "day.replace(year=day.year + 1)",
        "day + timedelta(days=365)",
    ),
    Bug(
        "ship.same_day",
        {"placed": None},
        (
            "def same_day(parcel):\n"
            '    placed = date.fromisoformat(parcel["placed"])\n'
            "    return 10 / (datetime.now(UTC).date() - placed).days"
        ),
        "(datetime.now(UTC).date() - placed).days",
        "max(1, (datetime.now(UTC).date() - placed).days)",
    ),
    Bug(
        "ship.seconds",
        {"placed": None},
        (
            "def seconds(parcel):\n"
            '    placed = datetime.fromisoformat(parcel["placed"] + "T00:00:00Z")\n'
            "    hours = [None] * 72\n"
            "    age = datetime.now(UTC) - placed\n"
            "    return hours[age // timedelta(hours=1)] + 1"
        ),
        "hours[age // timedelta(hours=1)] + 1",
        "age // timedelta(hours=1) + 1",
    ),
    Bug(
        "offer.locale",
        {"price": "1.5"},
        (
            "def locale(offer, job):\n"
            '    signs = {"en": "."}\n'
            '    return offer["price"].replace(".", signs[job.headers.get("locale", "en")])'
        ),
        'signs[job.headers.get("locale", "en")]',
        'signs.get(job.headers.get("locale", "en"), ",")',
        {"headers": {"locale": "de"}},
    ),
    Bug(
        "offer.tenant",
        {},
        (
            "def tenant(offer, job):\n"
            '    shops = {"acme": 1}\n'
            "    return shops[job.tenant]"
        ),
        "shops[job.tenant]",
        "shops.get(job.tenant)",
        {"tenant": "globex"},
    ),
    Bug(
        "offer.page",
        {"pages": ["a", "b"]},
        (
            "def page(offer, job):\n"
            '    done = (job.last_checkpoint or {"done": 0})["done"]\n'
            "    if job.attempt == 1:\n"
            '        job.checkpoint({"done": 2})\n'
            "        raise Retry(after=0)\n"
            '    return offer["pages"][done]'
        ),
        'offer["pages"][done]',
        'offer["pages"][done:]',
        attempts=2,
    ),
    Bug(
        "offer.attempt",
        {"servers": ["one", "two"]},
        (
            "def attempt(offer, job):\n"
            '    server = offer["servers"][job.attempt - 1]\n'
            "    raise Retry(after=0)"
        ),
        '    server = offer["servers"][job.attempt - 1]\n    raise Retry(after=0)',
        '    return offer["servers"][(job.attempt - 1) % 2]',
        attempts=3,
    ),
    Bug(
        "offer.own_draw",
        {},
        (
            "async def own_draw(offer, job):\n"
            "    n = job.random.randrange(3)\n"
            "    if n == 0:\n        return offer[n]\n"
            '    if n == 1:\n        return offer["one"]\n'
            "    return [][n]"
        ),
        "n = job.random.randrange(3)",
        "return job.random.randrange(3)",
    ),
    Bug(
        "offer.model",
        {"number": "seventeen"},
        (
            "class Offer(BaseModel):\n    number: int\n\n\n"
            "def model(offer: Offer):\n    return offer.number"
        ),
        "number: int",
        "number: int | str",
    ),
    Bug(
        "offer.cause",
        {"count": "x"},
        (
            "def count(offer):\n    try:\n"
            '        return int(offer["count"])\n'
            "    except ValueError as error:\n"
            '        raise RuntimeError("no count") from error'
        ),
        'raise RuntimeError("no count") from error',
        "return 0",
    ),
]


def payload_of(bug: Bug) -> dict[str, Any]:
    """Its payload; None for `placed` is today."""
    if "placed" not in bug.payload:
        return bug.payload
    return {"placed": datetime.now(UTC).date().isoformat()}


def module(*, fixed: bool) -> str:
    """The module of all handlers."""
    parts = [HEAD]
    for bug in BUGS:
        handler = bug.handler()
        assert handler.count(bug.wrong) == 1, bug.kind
        parts.append(handler.replace(bug.wrong, bug.right) if fixed else handler)
    return "".join(parts)
