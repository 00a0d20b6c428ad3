"""Incidents with a known cause, drawn at random: does `explain` name it?

`python -m tests.rules.incidents` prints the table of docs/explain.md.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from redrive.dead_letters.explain.answer import Base, Finding, Observed, explain
from redrive.dead_letters.explain.facts import MIN_DAYS
from redrive.rules.payloads.facts import facts_of

DAY = 86_400.0
SEEDS = 20
SIZES = (8, 40, 300)
SUCCEEDED = 200
MAX_DRAWS = 400_000
DEPLOYED_AT, BURST_AT = 2 * DAY, 2.9 * DAY

Drawn = dict[str, Any]
"""A job: payload, headers, tenant, place, at."""


class Incident(NamedTuple):
    """What jobs died of, and the fields that say so: none for what has no cause in any."""

    name: str
    is_hit: Callable[[Drawn, random.Random], bool]
    fields: frozenset[str]
    change: Callable[[Drawn, random.Random], None] = lambda _job, _chance: None
    """Made to each job that is drawn, before it is known whether it is hit."""


def draw(chance: random.Random) -> Drawn:
    """A job of a shop, some time in the last three days."""
    at = chance.uniform(0, 3 * DAY)
    payload: dict[str, Any] = {
        "order": round(at) * 10 + chance.randrange(10),
        "customer": {
            "id": f"c{chance.randrange(100_000)}",
            "country": chance.choices(("DE", "FR", "US", "PL"), (5, 2, 2, 1))[0],
            "mail": f"{chance.randrange(10**6)}@example.com",
        },
        "currency": chance.choices(("EUR", "USD", "PLN", "XAU"), (60, 30, 8, 2))[0],
        "amount": round(chance.lognormvariate(4, 1.2), 2),
        "quantity": chance.randrange(1, 12),
        "express": chance.random() < 0.3,
        "items": [
            {"sku": f"s{chance.randrange(500)}"} for _ in range(chance.randrange(1, 9))
        ],
        "channel": chance.choice(("web", "app", "shop")),
        "iban": f"{chance.choice(('DE', 'FR', 'XK'))}{chance.randrange(10**12):012}",
        "password": f"p{chance.randrange(10**9)}",
    }
    if chance.random() < 0.1:
        payload["voucher"] = f"v{chance.randrange(1000)}"
    node = chance.randrange(8)
    return {
        "payload": payload,
        "headers": {"source": chance.choices(("web", "api", "import"), (70, 25, 5))[0]},
        "tenant": f"t{chance.randrange(20)}",
        "place": {
            "version": "1.5.0" if at > DEPLOYED_AT else "1.4.2",
            "node": f"node-{node}",
            "pod": f"worker-{node}-{chance.randrange(3)}",
            "queue": "default",
        },
        "at": at,
    }


def _strip_country(job: Drawn, chance: random.Random) -> None:
    if chance.random() < 0.05:
        del job["payload"]["customer"]["country"]


def _quantity_as_text(job: Drawn, chance: random.Random) -> None:
    if chance.random() < 0.05:
        job["payload"]["quantity"] = str(job["payload"]["quantity"])


def _long_list(job: Drawn, chance: random.Random) -> None:
    if chance.random() < 0.05:
        job["payload"]["items"] = [{"sku": "s1"}] * chance.randrange(40, 90)


def _hour(job: Drawn) -> int:
    return int(job["at"] % DAY // 3600)


INCIDENTS = (
    Incident(
        "a value: `currency` is XAU",
        lambda job, _: job["payload"]["currency"] == "XAU",
        frozenset({"payload.currency"}),
    ),
    Incident(
        "a header: `source` is import",
        lambda job, _: job["headers"]["source"] == "import",
        frozenset({"header.source"}),
    ),
    Incident(
        "a field is missing: `customer.country`",
        lambda job, _: "country" not in job["payload"]["customer"],
        frozenset({"payload.customer.country"}),
        _strip_country,
    ),
    Incident(
        "a type: `quantity` is a text",
        lambda job, _: isinstance(job["payload"]["quantity"], str),
        frozenset({"payload.quantity"}),
        _quantity_as_text,
    ),
    Incident(
        "a number: `amount` is 500 or more",
        lambda job, _: job["payload"]["amount"] >= 500,
        frozenset({"payload.amount"}),
    ),
    Incident(
        "a list of 40 or more `items`",
        lambda job, _: len(job["payload"]["items"]) >= 40,
        frozenset({"payload.items[]"}),
        _long_list,
    ),
    Incident(
        "a node: node-7",
        lambda job, _: job["place"]["node"] == "node-7",
        frozenset({"node"}),
    ),
    Incident(
        "a version: 1.5.0",
        lambda job, _: job["place"]["version"] == "1.5.0",
        frozenset({"version"}),
    ),
    Incident(
        "a tenant, for four in five of the jobs; the others died by chance",
        lambda job, chance: job["tenant"] == "t7" or chance.random() < 0.25 / 19,
        frozenset({"tenant"}),
    ),
    Incident(
        "an hour: each night from 2 to 3",
        lambda job, _: _hour(job) == 2,
        frozenset({"hour"}),
    ),
    Incident(
        "two together: `country` is US and `express`",
        lambda job, _: (
            job["payload"]["customer"]["country"] == "US" and job["payload"]["express"]
        ),
        frozenset({"payload.customer.country", "payload.express"}),
    ),
    Incident(
        "two together: node-7 and `currency` is USD",
        lambda job, _: (
            job["place"]["node"] == "node-7" and job["payload"]["currency"] == "USD"
        ),
        frozenset({"node", "payload.currency"}),
    ),
    Incident(
        "a value that one in five dies of: `currency` is USD",
        lambda job, chance: (
            job["payload"]["currency"] == "USD" and chance.random() < 0.2
        ),
        frozenset({"payload.currency"}),
    ),
    Incident(
        "a value, in a burst a day after a deploy: `currency` is USD",
        lambda job, _: job["payload"]["currency"] == "USD" and job["at"] > BURST_AT,
        frozenset({"payload.currency"}),
    ),
    Incident(
        "none: one job in a hundred, by chance",
        lambda _, chance: chance.random() < 0.01,
        frozenset(),
    ),
    Incident(
        "none, in a burst a day after a deploy",
        lambda job, chance: job["at"] > BURST_AT and chance.random() < 0.3,
        frozenset(),
    ),
    Incident(
        "not looked for: `iban` begins with XK",
        lambda job, _: job["payload"]["iban"].startswith("XK"),
        frozenset({"payload.iban"}),
    ),
    Incident(
        "not looked for: an item has the `sku` s42",
        lambda job, _: {"sku": "s42"} in job["payload"]["items"],
        frozenset({"payload.items[].sku"}),
    ),
)


def stage(
    incident: Incident, size: int, seed: int
) -> tuple[list[Observed], list[Base]]:
    """The jobs that died, and those that succeeded meanwhile."""
    chance = random.Random(f"{incident.name} {size} {seed}")
    dead: list[Drawn] = []
    succeeded: list[Drawn] = []
    for _ in range(MAX_DRAWS):
        job = draw(chance)
        incident.change(job, chance)
        if incident.is_hit(job, chance):
            dead.append(job)
        elif len(succeeded) < SUCCEEDED:
            succeeded.append(job)
        if len(dead) >= size and len(succeeded) >= SUCCEEDED:
            break
    by_hour = len({int(job["at"] // DAY) for job in dead}) >= MIN_DAYS
    mine, others = (
        [observed(job, by_hour=by_hour) for job in some] for some in (dead, succeeded)
    )
    return mine, [Base("succeeded", others)]


def observed(job: Drawn, *, by_hour: bool) -> Observed:
    """A job as it is compared."""
    facts = facts_of(job["payload"], job["headers"], job["tenant"])
    hour = {"hour": _hour(job)} if by_hour else {}
    return Observed({**facts, **job["place"], **hour}, job["at"])


def run(incident: Incident, size: int, seed: int) -> list[Finding]:
    """What is said of one drawing of an incident."""
    return explain(*stage(incident, size, seed))


def verdict(incident: Incident, findings: Sequence[Finding]) -> str:
    """`right`: the cause comes first, or there is none to find; `later`, `missed`, `wrong`."""
    if not incident.fields:
        return "wrong" if findings else "right"
    if not findings:
        return "missed"
    fields = list(dict.fromkeys(finding.condition.field for finding in findings))
    if set(fields[: len(incident.fields)]) == incident.fields:
        return "right"
    return "later" if incident.fields <= set(fields) else "wrong"


def tally(
    incident: Incident, size: int, seeds: Sequence[int] = range(SEEDS)
) -> dict[str, int]:
    """How often each verdict was reached."""
    found = dict.fromkeys(("right", "later", "missed", "wrong"), 0)
    for seed in seeds:
        found[verdict(incident, run(incident, size, seed))] += 1
    return found


def table() -> Iterator[str]:
    """The lines of the table in docs/explain.md."""
    yield "| cause | dead letters | named first | named later | nothing said | something else |"
    yield "|---|---:|---:|---:|---:|---:|"
    for incident in INCIDENTS:
        for size in SIZES:
            found = tally(incident, size)
            said_nothing = found["missed"]
            right = str(found["right"])
            if not incident.fields:
                said_nothing, right = found["right"], ""
            yield (
                f"| {incident.name} | {size} | {right} | {found['later'] or ''}"
                f" | {said_nothing or ''} | {found['wrong'] or ''} |"
            )


if __name__ == "__main__":
    print("\n".join(table()))
