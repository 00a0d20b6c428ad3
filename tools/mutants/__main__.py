"""Remove each guard in the SQL in turn, and check that a test fails.

python -m tools.mutants                              all guards, which takes hours
python -m tools.mutants --files 'settle/*' --list    list the guards of some files
python -m tools.mutants --minutes 2                  a sample that differs every day; in CI it is always the same
python -m tools.mutants --shard 1/4                  a quarter, one process per shard

Results are kept in build/mutants and reused while file and tests stay the same, so a
stopped run can be continued. Guards in tools/mutants/known.txt are left out. Exit status
1 means that a guard can go and no test notices.
"""

import argparse
import fnmatch
import hashlib
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.generated import ROOT
from tools.mutants.guards import Mutant, mutants
from tools.mutants.runner import RESULTS, STUCK, Runner, Tests, state_of_tests

SQL = ("sql/functions/*/*.sql", "sql/migrations/*.sql", "sql/roles.sql")
SURVIVED = "survived"


def known() -> set[str]:
    """Return the names of guards that no test has to notice; the file gives reasons."""
    lines = (Path(__file__).parent / "known.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def found(*patterns: str) -> list[Mutant]:
    """Return all mutants of the files that match one of the patterns."""
    paths = sorted(path for glob in SQL for path in ROOT.glob(glob))
    names = [(path, str(path.relative_to(ROOT / "sql"))) for path in paths]
    return [
        mutant
        for path, name in names
        if any(fnmatch.fnmatch(name.removeprefix("functions/"), p) for p in patterns)
        for mutant in mutants(f"sql/{name}", path.read_text())
    ]


class Results:
    """Results of the mutants, one JSON line each; every shard writes its own file."""

    def __init__(self, shard: str) -> None:
        self._state = state_of_tests()
        self._path = RESULTS / f"{shard.replace('/', '-of-')}.jsonl"
        RESULTS.mkdir(parents=True, exist_ok=True)
        lines = [
            json.loads(s)
            for p in RESULTS.glob("*-of-*.jsonl")
            for s in p.read_text().splitlines()
        ]
        # A guard that a test needed is not examined again when tests are added.
        self._ends = {
            line["key"]: line["end"]
            for line in lines
            if line["tests"] == self._state or line["end"] != SURVIVED
        }

    def get(self, mutant: Mutant) -> str | None:
        """Return the test that failed, or `survived`; None if it is not known yet."""
        return self._ends.get(mutant.key)

    def add(self, mutant: Mutant, end: str) -> None:
        """Record a result."""
        self._ends[mutant.key] = end
        line = {
            "key": mutant.key,
            "tests": self._state,
            "mutant": str(mutant),
            "end": end,
        }
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def tried(mutant: Mutant, runner: Runner, tests: Tests, nearest: int | None) -> str:
    """Run the tests without the guard until one fails because of it.

    Returns the test's name, or `survived`.
    """
    left = tests.of(mutant)[:nearest]
    while left:
        failed = runner.first_failure(left, without=mutant)
        if failed is None:
            break
        if failed == STUCK or runner.passes(failed):
            return failed
        left = left[left.index(failed) + 1 :]
    return SURVIVED


def table(ends: dict[Mutant, str]) -> Iterator[str]:
    """Yield a table of the noticed mutants by kind, and a list of the others."""
    kinds, noticed = (
        Counter(m.kind for m in ends),
        Counter(m.kind for m in ends if ends[m] != SURVIVED),
    )
    yield f"{'guard':12}{'removed':>8}{'noticed':>8}"
    yield from (f"{kind:12}{n:8}{noticed[kind]:8}" for kind, n in sorted(kinds.items()))
    yield f"{'all':12}{kinds.total():8}{noticed.total():8}"
    survivors = [mutant for mutant, end in ends.items() if end == SURVIVED]
    if survivors:
        yield from (
            "",
            "no test fails without:",
            *(f"  {mutant}" for mutant in survivors),
        )


def drawn(mutant: Mutant, seed: int) -> bytes:
    """Return the place of a mutant in the sample of a seed.

    Adding or mending other guards does not change it, so a sample can be repeated after a change.
    """
    return hashlib.sha256(f"{seed} {mutant.name}".encode()).digest()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants", description=__doc__
    )
    parser.add_argument(
        "--files",
        nargs="+",
        default=["*"],
        help="below sql/functions or sql, as in 'settle/*'",
    )
    parser.add_argument(
        "--list", action="store_true", help="what there is to remove, and no tests"
    )
    parser.add_argument(
        "--shard", default="1/1", help="of how many; they can run side by side"
    )
    parser.add_argument(
        "--nearest", type=int, help="tests each: a first look, hasty with survivors"
    )
    parser.add_argument("--minutes", type=float, help="a random sample for so long")
    parser.add_argument(
        "--seed", type=int, default=int(time.time() // 86400), help="of the sample"
    )
    parser.add_argument(
        "--most", type=int, help="guards of the sample, on a fast machine too"
    )
    return parser.parse_args()


def main() -> int:
    """Try the requested mutants; return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # delete the copy too
    asked = _arguments()
    number, shards = map(int, asked.shard.split("/"))
    tolerated = known()
    chosen = [m for m in found(*asked.files) if m.name not in tolerated][
        number - 1 :: shards
    ]
    if asked.list:
        print(*chosen, sep="\n")
        return 0
    if asked.minutes is not None:
        chosen.sort(key=lambda mutant: drawn(mutant, asked.seed))
        chosen = chosen[: asked.most]
        print(f"a sample: --seed {asked.seed} repeats it")
    results, ends = Results(asked.shard), dict[Mutant, str]()
    tests = Tests()
    end_at = time.monotonic() + (asked.minutes or float("inf")) * 60
    with Runner() as runner:
        for mutant in chosen:
            end = results.get(mutant)
            if end is None:
                if time.monotonic() > end_at:
                    break
                end = tried(mutant, runner, tests, asked.nearest)
                results.add(mutant, end)
                print(f"{mutant}\n    {end}", flush=True)
            ends[mutant] = end
            tests.noticed(mutant, end)
    print(*table(ends), sep="\n")
    return int(SURVIVED in set(ends.values()))


if __name__ == "__main__":
    raise SystemExit(main())
