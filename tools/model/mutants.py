"""Remove guards that protect a promise from the SQL: the model must refuse what the database then does.

python -m tools.model.mutants                 20 of tools/model/promises.txt, drawn at random
python -m tools.model.mutants --seed 7        another draw
python -m tools.model.mutants --named         the classic mistakes of queues

Each mutant is a database of its own, in which random walks (tests/model/walk.py) are recorded. The
result is kept in build/model/mutants.jsonl. Exit status 1 means that a mutant was not noticed.
"""

import argparse
import json
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg

from redrive.database.embedded import NEWEST
from tests.model import recorder
from tests.model.walk import Walk
from tests.postgres import Server, embedded
from tools.generated import ROOT
from tools.model.judge import judge
from tools.mutants.__main__ import found

PROMISES = Path(__file__).with_name("promises.txt")
RESULTS = ROOT / "build" / "model" / "mutants.jsonl"
WALKS = 4
STEPS = 700

FENCE = re.compile(r"and \(select k\.is_claimed from checked k\)\[[^\n]*\]")
DELIVERY = re.compile(r"and j\.deliveries = \w+\.deliveries\[[^\n]*\] - 1")
NAMED: dict[str, tuple[str, Callable[[str], str]]] = {
    "finish by id without a fence": (
        "sql/functions/settle/complete.sql",
        lambda text: FENCE.sub("", DELIVERY.sub("", text)),
    ),
    "delete before insert": (
        "sql/functions/settle/settle.sql",
        # the dead letter is left to a second statement, which a crash may prevent
        lambda text: text.replace("from gone g where g.outcome = 'dead')", "from gone g where false)"),
    ),
    "forget a key early": (
        "sql/functions/maintenance/forget_completions.sql",
        lambda text: text.replace("where not j.is_needed and", "where"),
    ),
    "leave a returned job in its claim": (
        "sql/functions/settle/settle.sql",
        lambda text: text.replace("    unlisted as (\n        update redrive.claims k\n        set ids",
                                  "    unlisted as (\n        update redrive.claims k\n        set ids", 1)
        .replace("where c.id not in (select g.id from gone g union all", "where c.id not in (select g.id from gone g where false union all")
        .replace("select b.id from back b)\n                        order by c.n)", "select b.id from back b where false)\n                        order by c.n)"),
    ),
    "return a job with the same delivery": (
        "sql/functions/settle/settle.sql",
        lambda text: text.replace("            select settle_v1.deliveries[v.place],", "            select j.deliveries,"),
    ),
    "redrive what has succeeded": (
        "sql/functions/dead_letters/redrive.sql",
        lambda text: text.replace("where p.obstacle is null or p.obstacle = 'conflict'", "")
        .replace("where c.kind = j.kind and c.key = j.idempotency_key", "where false"),
    ),
}  # fmt: skip
"""Mistakes that other queues have made: the file, and what is wrong with its text."""


def notice(server: Server, text: str, seed: int) -> str | None:
    """Return why the model refuses what a database with this function does; None: it does not."""
    records = []
    for walk in range(WALKS):
        with server.database() as database:
            database.conn.execute(text)  # type: ignore[arg-type] # a file of ours without a guard
            recorder.install(database.conn)
            Walk(database.conn, random.Random(f"{seed} {walk}")).run(STEPS)
            records.append(list(recorder.read(database.conn)))
    return judge(*records, is_serial=True).refused


def drawn(seed: int, count: int) -> dict[str, str]:
    """Return the texts without a guard, by the guard's name."""
    names = [
        line.split(" ", 1)[1]
        for line in PROMISES.read_text().splitlines()
        if line[:1].isdigit()
    ]
    chosen = set(random.Random(seed).sample(names, min(count, len(names))))
    return {mutant.name: mutant.text for mutant in found("*") if mutant.name in chosen}


def named() -> dict[str, str]:
    """Return the texts with a classic mistake, by its name."""
    texts = {name: (ROOT / file).read_text() for name, (file, _) in NAMED.items()}
    wrong = {name: make(texts[name]) for name, (_, make) in NAMED.items()}
    assert all(wrong[name] != texts[name] for name in NAMED), (
        "a mistake no longer fits its file"
    )
    return wrong


def main() -> int:
    """Return the exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=20)
    options.add_argument("--named", action="store_true")
    asked = options.parse_args()
    missed = 0
    with embedded(NEWEST) as server, RESULTS.open("a") as file:
        mutants = named() if asked.named else drawn(asked.seed, asked.count)
        for name, text in mutants.items():
            try:
                why = notice(server, text, asked.seed)
            except psycopg.Error as error:
                why = f"the function cannot be made: {error}"
            first = (why or "not noticed").split("\n")[0]
            print(f"{name}\n    {first}", flush=True)
            file.write(
                json.dumps({"mutant": name, "seed": asked.seed, "end": why}) + "\n"
            )
            missed += why is None
    print(f"{len(mutants) - missed} of {len(mutants)} were noticed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
