"""Remove each guard in the SQL in turn, and see that some test fails.

python -m tools.mutants                              all of them, which takes hours
python -m tools.mutants --files 'settle/*' --list    what there is to remove in some files
python -m tools.mutants --minutes 2                  a sample, another one every day
python -m tools.mutants --shard 1/4                  a quarter; each shard is a process of its own

What has been found out is kept in build/mutants and not done again while file and tests stay the
same, so a run that was stopped goes on. Exit status 1: some guard can go and no test notices.
"""

import argparse
import fnmatch
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tools.generated import ROOT
from tools.mutants.guards import Mutant, mutants

SQL = ("sql/functions/*/*.sql", "sql/migrations/*.sql", "sql/roles.sql")
TESTS = "tests/sql"
TEXTUAL = "tests/sql/test_schema.py"
"""It compares text: every change of a file would fail there, whatever it means."""

EVERYWHERE = {"path": "test_headers.py", "revoke": "test_roles.py"}
"""The kinds of guard that one file of tests looks for in every function."""

NOT_COPIED = (".git", ".venv", "build", "__pycache__", ".*_cache", ".hypothesis")
RESULTS = ROOT / "build" / "mutants"
SURVIVED = "survived"
STUCK = "the tests came to no end"
PATIENCE_SECONDS = 240
"""How long each hundred tests may take: without its guard a loop may not end."""
NEAREST = 12
"""Tests that are run first."""


def found(pattern: str) -> list[Mutant]:
    """All there are in the files that match."""
    paths = sorted(path for glob in SQL for path in ROOT.glob(glob))
    names = [(path, str(path.relative_to(ROOT / "sql"))) for path in paths]
    return [
        mutant
        for path, name in names
        if fnmatch.fnmatch(name.removeprefix("functions/"), pattern)
        for mutant in mutants(f"sql/{name}", path.read_text())
    ]


def state_of_tests() -> str:
    """Another one when a test has changed."""
    tests = sorted((ROOT / TESTS).glob("*.py"))
    return hashlib.sha256(b"".join(test.read_bytes() for test in tests)).hexdigest()[:16]


class Results:
    """What became of which mutant, one JSON line each; every shard writes a file of its own."""

    def __init__(self, shard: str) -> None:
        self._state = state_of_tests()
        self._path = RESULTS / f"{shard.replace('/', '-of-')}.jsonl"
        RESULTS.mkdir(parents=True, exist_ok=True)
        lines = [
            json.loads(s) for p in RESULTS.glob("*-of-*.jsonl") for s in p.read_text().splitlines()
        ]
        # a guard that some test needed is not looked at again because tests were added
        self._ends = {
            line["key"]: line["end"]
            for line in lines
            if line["tests"] == self._state or line["end"] != SURVIVED
        }

    def get(self, mutant: Mutant) -> str | None:
        """The test that failed, or `survived`; None while it is not known."""
        return self._ends.get(mutant.key)

    def add(self, mutant: Mutant, end: str) -> None:
        """Remember."""
        self._ends[mutant.key] = end
        line = {"key": mutant.key, "tests": self._state, "mutant": str(mutant), "end": end}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


@contextmanager
def checkout() -> Iterator[Path]:
    """A copy of the files as they are now, to be changed one at a time."""
    with tempfile.TemporaryDirectory(prefix="redrive-mutants-") as home:
        copy = Path(home, "redrive")
        shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        yield copy


class Tests:
    """Which tests are run against which mutant: those that call what it is in."""

    def __init__(self, home: Path) -> None:
        calls = RESULTS / f"calls-{state_of_tests()}.jsonl"
        if not calls.exists():
            print("which tests call what: some minutes", flush=True)
            unfinished = calls.with_suffix(f".{os.getpid()}")
            run(home, "-p", "tools.mutants.calls", TESTS, calls=unfinished)
            unfinished.rename(calls)
        lines = [json.loads(line) for line in calls.read_text().splitlines()]
        self._calls: dict[str, list[str]] = {line["test"]: line["functions"] for line in lines}

    def of(self, mutant: Mutant) -> list[str]:
        """Those that may notice it, the ones that call little else first."""
        tests = {t: calls for t, calls in self._calls.items() if not t.startswith(TEXTUAL)}
        if mutant.kind in EVERYWHERE:
            return sorted(tests, key=lambda t: EVERYWHERE[mutant.kind] not in t)
        of_function = [t for t in tests if mutant.function in tests[t]]
        return sorted(of_function or tests, key=lambda t: len(tests[t]))


def tried(mutant: Mutant, home: Path, tests: list[str]) -> str:
    """Run the tests against it until one fails, because of it. Returns its name, or `survived`."""
    # most are noticed by the nearest: the others need not even be collected
    for some in (tests[:NEAREST], tests[NEAREST:]):
        left = some
        while left:
            with _applied(mutant, home):
                test = first_failure(home, left)
            if test == SURVIVED:
                break
            if test == STUCK or _passes_without_it(home, test):
                return test
            left = [other for other in left if other != test]
    return SURVIVED


@cache
def _passes_without_it(home: Path, test: str) -> bool:
    """Whether a test that failed passes when no guard is gone: the machine may be busy."""
    return first_failure(home, [test]) == SURVIVED


@contextmanager
def _applied(mutant: Mutant, home: Path) -> Iterator[None]:
    file = home / mutant.file
    original = file.read_text()
    file.write_text(mutant.text)
    try:
        yield
    finally:
        file.write_text(original)


def first_failure(home: Path, tests: list[str]) -> str:
    """Run tests of a checkout up to the first that fails. Returns its name, or `survived`."""
    # a failure that is the guard's comes again
    try:
        done = run(home, "-x", "--reruns=1", *tests)
    except subprocess.TimeoutExpired:
        return STUCK
    if done.returncode == 0:
        return SURVIVED
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if failed is None or "errors.SyntaxError" in done.stdout:
        msg = f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        raise RuntimeError(msg)
    return failed[1]


def run(home: Path, *arguments: str, calls: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run pytest in a checkout."""
    env = os.environ | {
        "PYTHONPATH": str(home / "service"),
        "REDRIVE_TEST_POSTGRES": "embedded:18",
        "REDRIVE_CALLS": str(calls),
    }
    # no:randomly: in the order that is given
    options = ["-q", "--tb=no", "-p", "no:randomly", "-p", "no:cacheprovider"]
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("\n".join(arguments))
        file.flush()
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options, f"@{file.name}"],
            cwd=home,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS * (1 + len(arguments) // 100),
            check=False,
        )


def table(ends: dict[Mutant, str]) -> Iterator[str]:
    """How many of each kind are noticed, and the ones that are not."""
    kinds, noticed = (
        Counter(m.kind for m in ends),
        Counter(m.kind for m in ends if ends[m] != SURVIVED),
    )
    yield f"{'guard':12}{'removed':>8}{'noticed':>8}"
    yield from (f"{kind:12}{n:8}{noticed[kind]:8}" for kind, n in sorted(kinds.items()))
    yield f"{'all':12}{kinds.total():8}{noticed.total():8}"
    survivors = [mutant for mutant, end in ends.items() if end == SURVIVED]
    if survivors:
        yield from ("", "no test fails without:", *(f"  {mutant}" for mutant in survivors))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--files", default="*", help="below sql/functions or sql, as in settle/*")
    parser.add_argument("--list", action="store_true", help="what there is to remove, and no tests")
    parser.add_argument("--shard", default="1/1", help="of how many; they can run side by side")
    parser.add_argument("--minutes", type=float, help="a random sample for so long")
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400), help="of the sample")
    return parser.parse_args()


def main() -> int:
    """Try what was asked for. Returns the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # take the copy along
    asked = _arguments()
    number, shards = map(int, asked.shard.split("/"))
    chosen = found(asked.files)[number - 1 :: shards]
    if asked.list:
        print(*chosen, sep="\n")
        return 0
    end_at = float("inf")
    if asked.minutes is not None:
        random.Random(asked.seed).shuffle(chosen)
        end_at = time.monotonic() + asked.minutes * 60
    results, ends = Results(asked.shard), dict[Mutant, str]()
    with checkout() as home:
        tests = Tests(home)
        for mutant in chosen:
            end = results.get(mutant)
            if end is None:
                if time.monotonic() > end_at:
                    break
                end = tried(mutant, home, tests.of(mutant))
                results.add(mutant, end)
                print(f"{mutant}\n    {end}", flush=True)
            ends[mutant] = end
    print(*table(ends), sep="\n")
    return int(SURVIVED in set(ends.values()))


if __name__ == "__main__":
    raise SystemExit(main())
