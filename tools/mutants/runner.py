"""Choose the tests that should notice a missing guard, and run them."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from select import select
from typing import Self

from tools.generated import ROOT
from tools.mutants.guards import Mutant

TESTS = "tests/sql"
CALLS_EVERYTHING = "tests/sql/test_waits.py"
"""Calls every function, to see that none waits; so it comes after the tests of a function."""

TEXTUAL = "tests/sql/test_schema.py"
"""Test file that compares text, so that every change of a file would fail it."""

EVERYWHERE = {"path": "test_headers.py", "revoke": "test_roles.py"}
"""Kinds of guard that one test file checks in every function."""

NOT_COPIED = (".git", ".venv", "build", "__pycache__", ".*_cache", ".hypothesis")
RESULTS = ROOT / "build" / "mutants"
DEFINED = re.compile(r"create or replace (?:function|view) redrive\.(\w+)")
LOG = RESULTS / "pytest.log"
ENDED = f"pytest ended: {LOG} says why"
CAME_TO_AN_END = (0, 1, 5)
"""Exit statuses of pytest: all passed, some failed, or none to run."""
STUCK = "the tests came to no end"
PATIENCE_SECONDS = 240
"""Time limit for each hundred tests.

A single test that hangs is given up earlier.
"""


def _files() -> list[Path]:
    return sorted((ROOT / TESTS).glob("test_*.py"))


def _state(files: list[Path]) -> str:
    """Hash what the tests of these files are. CI has more parameters of some."""
    state = hashlib.sha256(os.environ.get("CI", "").encode())
    for file in files:
        state.update(file.read_bytes())

    return state.hexdigest()[:16]


@cache
def state_of_tests() -> str:
    """Return a digest that changes when a test changes."""
    return _state(_files())


class Tests:
    """Tests to run for each mutant: the ones that call its function."""

    def __init__(self) -> None:
        lines = [
            json.loads(s) for calls in _calls() for s in calls.read_text().splitlines()
        ]
        self._calls: dict[str, list[str]] = {
            line["test"]: line["functions"] for line in lines
        }
        tests = [test for test in self._calls if not test.startswith(TEXTUAL)]
        self._callers_of_all = [
            test for test in tests if test.startswith(CALLS_EVERYTHING)
        ]
        self._tests = [test for test in tests if not test.startswith(CALLS_EVERYTHING)]
        self._noticed = Counter[tuple[str, str]]()

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that may notice the mutant.

        Tests that noticed others, first of all in the same file, come first. After
        them, tests that call few functions come first.
        """
        if mutant.kind in EVERYWHERE:
            return sorted(self._tests, key=lambda t: EVERYWHERE[mutant.kind] not in t)
        of_function = self._that_call(
            {mutant.function} if mutant.function else set[str]()
        )
        tests = sorted(
            of_function
            or self._tests,  # a guard outside of functions affects all tests
            key=lambda t: (
                -self._noticed[mutant.file, t],
                -self._noticed["", t],
                len(self._calls[t]),
            ),
        )
        return tests + self._callers_of_all

    def _that_call(self, functions: set[str]) -> list[str]:
        """Return the tests that call these functions, or else their callers.

        The server reports no calls of an inlined function.
        """
        seen = set[str]()
        while functions:
            seen |= functions
            tests = [t for t in self._tests if not functions.isdisjoint(self._calls[t])]
            if tests:
                return tests
            callers = {
                name for name, used in uses().items() if not functions.isdisjoint(used)
            }
            functions = callers - seen
        return []

    def noticed(self, mutant: Mutant, test: str) -> None:
        """Give this test priority for other mutants, most of all in the same file."""
        self._noticed[mutant.file, test] += 1
        self._noticed["", test] += 1


@cache
def uses() -> dict[str, set[str]]:
    """Return the functions that each function's file mentions."""
    texts = [path.read_text() for path in (ROOT / "sql/functions").rglob("*.sql")]
    return {
        name: set(re.findall(r"redrive\.(\w+)", text)) - {name}
        for text in texts
        for name in DEFINED.findall(text)
    }


def _calls() -> list[Path]:
    """Return a file of recorded calls for each test file in its current state."""
    found = {test: RESULTS / f"{test.stem}-{_state([test])}.jsonl" for test in _files()}
    new = [test for test, calls in found.items() if not calls.exists()]
    if new:
        RESULTS.mkdir(parents=True, exist_ok=True)
        print("which tests call what: some minutes", flush=True)
        with tempfile.TemporaryDirectory() as folder, _copy() as home:
            names = [str(test.relative_to(ROOT)) for test in new]
            pytest = _pytest(
                home, "tools.mutants.calls", "-n", "auto", *names, REDRIVE_CALLS=folder
            )
            if pytest.wait() not in CAME_TO_AN_END:
                raise RuntimeError(ENDED)
            for test in new:
                lines = Path(folder, test.name)  # missing if all of its tests are slow
                _write_whole(found[test], lines.read_text() if lines.exists() else "")
    return list(found.values())


def _write_whole(path: Path, text: str) -> None:
    """Write a file atomically: its existence means that it is complete."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


class Runner:
    """Runs the tests on a copy of the files, with one guard removed at a time.

    See again.py for the process that runs them.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._passes = dict[str, bool]()

    def __enter__(self) -> Self:
        home = self._stack.enter_context(_copy())
        asked, given = os.pipe(), os.pipe()
        pipes = asked[0], given[1]
        pytest = _pytest(
            home,
            "tools.mutants.again",
            TESTS,
            pass_fds=pipes,
            REDRIVE_PIPES=json.dumps(pipes),
        )
        self._stack.callback(pytest.wait)
        self._stack.callback(pytest.kill)
        for pipe in pipes:
            os.close(pipe)
        self._asked = self._stack.enter_context(os.fdopen(asked[1], "w", 1))
        self._given = self._stack.enter_context(os.fdopen(given[0]))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def first_failure(
        self, tests: Sequence[str], without: Mutant | None = None
    ) -> str | None:
        """Return the first test that fails twice; None if all pass."""
        changed = without and {"file": without.file, "text": without.text}
        print(json.dumps({"changed": changed, "tests": tests}), file=self._asked)
        if not select(
            [self._given], [], [], PATIENCE_SECONDS * (1 + len(tests) // 100)
        )[0]:
            self.__exit__()
            self.__enter__()
            return STUCK
        answer = self._given.readline()
        if not answer:
            raise RuntimeError(ENDED)
        return json.loads(answer)

    def passes(self, test: str) -> bool:
        """Return True if the test passes with all guards in place.

        If it does not, the missing guard did not cause its failure.
        """
        if test not in self._passes:
            self._passes[test] = self.first_failure([test]) is None
        return self._passes[test]


@contextmanager
def _copy() -> Iterator[Path]:
    """Yield a copy of the files in their current state."""
    with tempfile.TemporaryDirectory(prefix="redrive-mutants-") as home:
        copy = Path(home, "redrive")
        shutil.copytree(
            ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED)
        )
        yield copy


def _pytest(
    home: Path, plugin: str, *arguments: str, pass_fds: Sequence[int] = (), **more: str
) -> subprocess.Popen[bytes]:
    env = {
        "PYTHONPATH": str(home / "service"),
        "REDRIVE_TEST_POSTGRES": "embedded:18",
        **more,
    }
    options = [
        "-q",
        "-m",
        "not slow",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-p",
        plugin,
    ]
    with LOG.open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *arguments],
            cwd=home,
            env=os.environ | env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=pass_fds,
        )
