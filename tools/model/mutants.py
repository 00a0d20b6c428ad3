"""Remove guards that protect a promise from the SQL: the model must refuse what the database then does.

python -m tools.model.mutants                 20 of tools/model/promises.txt, drawn at random
python -m tools.model.mutants --seed 7        another draw
python -m tools.model.mutants --named         the classic mistakes of queues

Each mutant is a database of its own, in which random walks (tests/model/walk.py) are recorded. Exit
status 1 means that a mutant was not noticed.
"""

import argparse
import random
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, LiteralString, cast

from redrive.database.embedded import NEWEST
from tests.model import recorder
from tests.model.walk import Walk
from tests.postgres import Server, embedded
from tools.generated import ROOT
from tools.model.judge import judge
from tools.mutants.__main__ import found

PROMISES = Path(__file__).with_name("promises.txt")
STEPS = 400

FENCE = r"and \(select k\.is_claimed from checked k\)\[[^\n]*\]"
DELIVERY = r"and j\.deliveries = \w+\.deliveries\[[^\n]*\] - 1"
NAMED: dict[str, tuple[str, Mapping[str, str]]] = {
    "finish by id without a fence": ("settle/complete.sql", {FENCE: "", DELIVERY: ""}),
    # the dead letter is left to a second statement, which a crash may prevent
    "delete before insert": (
        "settle/settle.sql",
        {r"from gone g where g\.outcome = 'dead'": "from gone g where false"},
    ),
    "forget a key early": (
        "maintenance/forget_completions.sql",
        {r"where not j\.is_needed and": "where"},
    ),
    "leave a returned job in its claim": (
        "settle/settle.sql",
        {r"where k\.id = any \(array\(select g\.claim": r"where false and k.id = any (array(select g.claim"},
    ),
    "return a job with the same delivery": (
        "settle/settle.sql",
        {r"select settle_v1\.deliveries\[v\.place\],": "select j.deliveries,"},
    ),
    "redrive what has succeeded": (
        "dead_letters/redrive.sql",
        {
            r"where p\.obstacle is null or p\.obstacle = 'conflict'": "",
            r"where c\.kind = j\.kind and c\.key = j\.idempotency_key": "where false",
        },
    ),
}  # fmt: skip
"""Mistakes that other queues have made: the file, and what is replaced in it."""


def walked(server: Server, text: str, seed: int) -> list[dict[str, Any]]:
    """Return what a database with this function does in a random walk."""
    with server.database() as database:
        database.conn.execute(cast("LiteralString", text))
        recorder.install(database.conn)
        Walk(database.conn, random.Random(seed)).run(STEPS)
        return list(recorder.read(database.conn))


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
    """Return the texts with a classic mistake, by its name.

    Raises ValueError if a mistake no longer fits its file.
    """
    texts: dict[str, str] = {}
    for name, (file, changes) in NAMED.items():
        text = (ROOT / "sql" / "functions" / file).read_text()
        for right, wrong in changes.items():
            text, count = re.subn(right, wrong, text)
            if count == 0:
                raise ValueError(name, right)
        texts[name] = text
    return texts


def main() -> int:
    """Return the exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=20)
    options.add_argument("--walks", type=int, default=2, help="for each")
    options.add_argument("--named", action="store_true")
    asked = options.parse_args()
    mutants = named() if asked.named else drawn(asked.seed, asked.count)
    records = dict[str, list[dict[str, Any]]]()
    with embedded(NEWEST) as server:
        for name, text in mutants.items():
            for walk in range(asked.walks):
                records[f"{walk} {name}"] = walked(server, text, asked.seed + walk)
            print(f"walked without {name}", flush=True)
    verdicts = judge(records, is_serial=True)
    missed = 0
    for name in mutants:
        refused = [
            run
            for walk in range(asked.walks)
            for run in verdicts[f"{walk} {name}"].refused
        ]
        print(
            f"{name}\n    {f'noticed in {len(refused)} runs' if refused else 'not noticed'}"
        )
        missed += not refused
    print(f"{len(mutants) - missed} of {len(mutants)} were noticed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
