"""Remove guards from the SQL, and see whether the model refuses what the functions then do.

python -m trials.model.mutants                20 guards of guards.txt, drawn at random
python -m trials.model.mutants --all          all of them
python -m trials.model.mutants --named        mistakes that other queues made

Exit status 1 means that the model noticed too few. `--output` keeps what was found as JSON.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from redrive.database.embedded import NEWEST
from tests.postgres import Server, embedded
from tools.generated import ROOT
from tools.model.judge import judge
from tools.mutants.guards import mutants
from trials.model.walk import walk

LIST = Path(__file__).with_name("guards.txt")
WALKS = 4
"""Walks of each kind, in turn and overlapping, before a mutant counts as not noticed."""
STEPS = 400
SHARE = 0.9


@dataclass(frozen=True)
class Mistake:
    """Something to remove from the SQL, and the promise that it protects."""

    name: str
    promise: str
    file: str
    guards: tuple[str, ...] = ()
    text: tuple[str, str] = ("", "")
    """Or a text of the file, and what stands in its place."""

    @property
    def sql(self) -> str:
        """Return the file with the mistake."""
        text = (ROOT / self.file).read_text()
        if self.text[0] and self.text[0] not in text:
            raise ValueError(f"{self.file} has no longer: {self.text[0]}")
        text = text.replace(*self.text, 1)
        # from the end, so that the others keep their numbers
        for name in reversed(self.guards):
            found = [m for m in mutants(self.file, text) if m.name == name]
            if not found:
                raise ValueError(f"there is no longer a guard {name}")
            text = found[0].text
        return text


@cache
def listed() -> list[Mistake]:
    """Return the guards of guards.txt."""
    lines = [line for line in LIST.read_text().splitlines() if line and line[0] != "#"]
    named = [line.split(" ", 1) for line in lines]
    return [
        Mistake(name, promise, name.split(" ", 1)[0], (name,))
        for promise, name in named
    ]


COMPLETE = "sql/functions/settle/complete.sql"
SETTLE = "sql/functions/settle/settle.sql"
IS_DELIVERY = (
    "condition: j.deliveries = complete_v1.deliveries[width_bucket(j.id, ids)] - 1"
)
IS_CLAIMED = "condition: (select k.is_claimed from checked k)[width_bucket(j.id, ids)]"
MARK_LOST = "sql/functions/workers/mark_lost.sql"
IS_SILENT = (
    "s.heard < (select redrive.contact_now_v1()) - coalesce(s.ttl, mark_lost_v1.ttl)"
)
FORGET = "sql/functions/maintenance/forget_completions.sql"
NAMED = (
    Mistake(
        "finish by id, without a fence",
        "3",
        COMPLETE,
        (f"{COMPLETE} {IS_DELIVERY}", f"{COMPLETE} {IS_CLAIMED}"),
    ),
    Mistake(
        "delete the job, crash, and never insert the dead letter",
        "8",
        SETTLE,
        text=("from gone g where g.outcome = 'dead'),", "from gone g where false),"),
    ),
    Mistake(
        "forget a key while a dead letter may still repeat its work",
        "9",
        "sql/functions/maintenance/forget_completions.sql",
        (
            "sql/functions/maintenance/forget_completions.sql condition: not j.is_needed",
        ),
    ),
    Mistake(
        "complete the job without remembering its key",
        "1",
        COMPLETE,
        text=("where idempotency_key is not null\n", "where false\n"),
    ),
    Mistake(
        "take jobs back from a worker that is only slow",
        "4",
        MARK_LOST,
        (f"{MARK_LOST} condition: {IS_SILENT}",),
    ),
)


def noticed(server: Server, mistake: Mistake) -> str | None:
    """Return the walk in which the model refused the mistake; None if it allowed all of them."""
    for seed in range(WALKS):
        for overlaps in (False, True):
            with server.database() as database:
                database.conn.execute(mistake.sql)  # type: ignore[arg-type] # a file of ours
                notes = walk(database, seed, STEPS, overlaps=overlaps)
            if judge({"": notes}, is_serial=not overlaps)[""].refused:
                return f"walk {seed}, {'overlapping' if overlaps else 'in turn'}"
    return None


def examined(server: Server, chosen: list[Mistake]) -> Iterator[dict[str, str | None]]:
    """Yield what was found of each mistake."""
    for mistake in chosen:
        began = time.monotonic()
        found = noticed(server, mistake)
        yield {"promise": mistake.promise, "mistake": mistake.name, "noticed": found}
        print(
            f"{found or 'NOT NOTICED':22} {time.monotonic() - began:4.0f} s  {mistake.name}",
            flush=True,
        )


def main() -> int:
    """Return the exit status."""
    options = argparse.ArgumentParser(
        prog="python -m trials.model.mutants", description=__doc__
    )
    options.add_argument("--all", action="store_true", help="do not draw")
    options.add_argument("--named", action="store_true", help="mistakes of others")
    options.add_argument("--seed", type=int, default=1, help="of the drawing")
    options.add_argument("--output", type=Path)
    asked = options.parse_args()
    chosen = list(NAMED if asked.named else listed())
    if not asked.all and not asked.named:
        chosen = random.Random(asked.seed).sample(chosen, 20)
        print(f"20 of {len(listed())} guards: --seed {asked.seed} repeats it")
    with embedded(NEWEST) as server:
        found = list(examined(server, chosen))
    count = sum(one["noticed"] is not None for one in found)
    print(f"the model noticed {count} of {len(found)}")
    if asked.output:
        asked.output.write_text(json.dumps(found, indent=1) + "\n")
    return int(count < SHARE * len(found))


if __name__ == "__main__":
    sys.exit(main())
