"""The wheel with nothing beside it, then with each extra alone: every command, in odd surroundings.

tests/package/walk.py runs hundreds of commands in one process of such an environment. Some are
run again as processes of their own. REDRIVE_TEST_MATRIX names a file for a table of the counts.
"""

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import psycopg
import pytest

from redrive.batches import open_batch
from redrive.database.connections.connect import connect
from redrive.testing import postgres
from tests.commands import commands
from tests.factories import make_dead_letter, make_full_job, make_job, make_schedule
from tests.package.conftest import PYTHONS, ROOT, UV, interpreter, run

pytestmark = [pytest.mark.package, pytest.mark.xdist_group("package")]

WALK = Path(__file__).with_name("walk.py")
ODD = """it's "my" $HOME `x`"""
NAMELESS = ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME")
KEYS = f"k1 {'A' * 43}="
SOURCES = {
    "rabbitmq": "rabbitmq: {old: {url: 'amqp://127.0.0.1:1/', queue: dead}}\n",
    "sqs": "sqs: {old: {queue_url: 'http://127.0.0.1:1/1/dead', region: a}}\n",
}

ALL_EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
READS = (
    "dlq groups",
    "dlq groups --json",
    "dlq show 1",
    "dlq show f1",
    "dlq explain f1",
    "dlq export 1",
    "dlq report f1",
    "dlq report --since 7d",
    "job show 3",
    "job show 3 --json",
    "batch show 1",
    "campaign show 1",
    "queue limits",
    "policy show",
    "top",
    "audit verify",
    "audit export",
    "check",
)
"""Commands that only read, besides each `ls`."""

WHY = ("--why", "a test", "--yes")
FILL = (
    ("queue", "pause", "mail", *WHY),
    ("owner", "set", "mail", "team-mail", "--contact", "#\u2709", *WHY),
    ("objective", "set", "mail", "page_on_first_dead_letter", "1", *WHY),
    ("limit", "set", "provider", "--concurrency", "2", *WHY),
    ("dlq", "note", "1", "the bank says \u2603"),
    ("dlq", "ack", "1", *WHY),
    ("campaign", "plan", "--kind", "mail.send"),
)


class Call(NamedTuple):
    """A command that needs an extra, and the variables that make it need it."""

    extra: str
    arguments: Sequence[str]
    variables: Mapping[str, str | None] = {}


def needing(files: Path) -> list[Call]:
    """Every command that needs an extra, as far as no runner has to say so."""
    for name, text in SOURCES.items():
        (files / f"{name}.yaml").write_text(text)
    (files / "keys").write_text(KEYS)
    (files / "keys").chmod(0o400)
    unset = {"REDRIVE_DATABASE_URL": None}
    return [
        Call("console", ["console"]),
        Call("mcp", ["mcp"]),
        Call("embedded", ["demo"]),
        Call("dev", ["dev", "app:jobs"], unset),
        Call(
            "crypto", ["reencrypt"], {"REDRIVE_ENCRYPTION_KEYS_FILE": f"{files}/keys"}
        ),
        Call("crypto", ["enqueue", "a.b"], {"REDRIVE_ENCRYPTION_KEYS": KEYS}),
        *(
            Call(name, ["gateway", "check", "--sources", f"{files}/{name}.yaml"])
            for name in SOURCES
        ),
    ]


@pytest.fixture(scope="module")
def databases() -> Iterator[tuple[str, str]]:
    """The URLs of an empty database, and of one in which each list has something."""
    with postgres() as empty:
        server, _, _ = empty.rpartition("/")
        filled = f"{server}/filled"
        with psycopg.connect(f"{server}/template1") as conn:
            conn.autocommit = True
            conn.execute("create database filled template postgres")
        with connect(filled) as conn:
            fill(conn)
        environment = {"PATH": os.environ["PATH"], "REDRIVE_DATABASE_URL": filled}
        program = [f"{ROOT}/.venv/bin/python", "-m", "redrive"]
        for arguments in FILL:
            done = subprocess.run(
                [*program, *arguments],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (arguments, done.stderr)
        yield empty, filled


def fill(conn: Any) -> None:
    """Make dead letters 1 and 2, job 3, and what commands do not make."""
    make_dead_letter(conn, "mail.send", {"to": "Zo\xeb \u2603"}, queue="mail")
    make_dead_letter(conn, "a.kind.with.a.name.as.long.as.names.are", queue="mail")
    make_job(conn, "mail.send", {"to": "\U0001f600"}, queue="mail")
    make_full_job(conn)
    make_schedule(conn, "morning")
    open_batch(conn, on_end={"kind": "report"})


def lists() -> list[list[str]]:
    """Every command that lists something, for people and as JSON, and other commands that read."""
    found = [str(text).split() for text in READS]
    for typed, command in commands():
        if typed.endswith(" ls"):
            words = typed.split()[1:]
            found.append(words)
            if any("--json" in param.opts for param in command.params):
                found.append([*words, "--json"])
    return found


def variants(
    odd: Path, databases: tuple[str, str], calls: Sequence[Call], *, whole: bool
) -> list[dict[str, Any]]:
    """What a walk does. With `whole`, everything in every variant."""
    surroundings: dict[str, dict[str, Any]] = {
        "plain": {},
        "ascii": {"encoding": "ascii", "variables": {"PYTHONIOENCODING": "ascii"}},
        "latin-1": {
            "encoding": "latin-1",
            "variables": {"PYTHONIOENCODING": "latin-1"},
        },
        "no home": {"variables": dict.fromkeys(NAMELESS), "nobody": True},
        "80 columns": {"variables": {"COLUMNS": "80"}},
        "odd path": {"directory": str(odd)},
    }
    empty, filled = databases
    made: list[dict[str, Any]] = []
    for name, variant in surroundings.items():
        given: dict[str, Any] = {"name": name, **variant, "calls": {"help": []}}
        made.append(given)
        if whole or name == "plain":
            given["calls"]["completion"] = []
        for call in calls:
            variables = variant.get("variables", {}) | {"REDRIVE_DATABASE_URL": filled}
            one = {"calls": {f"needs {call.extra}": [call.arguments]}}
            made.append(given | {"variables": variables | dict(call.variables)} | one)
        if whole or name == "ascii":
            for kind, url in (("empty", empty), ("filled", filled)):
                variables = variant.get("variables", {}) | {"REDRIVE_DATABASE_URL": url}
                made.append(given | {"variables": variables, "calls": {kind: lists()}})
    return made


class Environment:
    """A virtual environment with the wheel, and one extra at most."""

    def __init__(self, directory: Path, python: Path, wheel: Path, extra: str) -> None:
        self.bin = directory / "bin"
        run(UV, "venv", "--quiet", "--clear", "--python", python, directory)
        what = f"redrive[{extra}] @ file://{wheel}" if extra else str(wheel)
        install = ("pip", "install", "--quiet", "--python", self.bin / "python")
        run(UV, *install, what)

    def has(self, extra: str) -> bool:
        """Return whether all packages of an extra are here, also if another brought them."""
        (packages,) = self.bin.parent.glob("lib/*/site-packages")
        names = (path.name.partition("-")[0] for path in packages.glob("*.dist-info"))
        return required(extra) <= {name.lower() for name in names}

    def walk(self, plan: object) -> dict[str, list[dict[str, Any]]]:
        """Walk with and without -OO at the same time. Returns what was called."""
        (self.bin / "plan").write_text(json.dumps(plan))
        walks = {
            name: self._start(flags, self.bin / f"walked{name}")
            for name, flags in (("", ()), ("-OO", ("-OO",)))
        }
        done: dict[str, list[dict[str, Any]]] = {}
        for name, walk in walks.items():
            _, err = walk.communicate(timeout=300)
            assert (walk.returncode, err) == (0, ""), name
            lines = (self.bin / f"walked{name}").read_text().splitlines()
            done[name] = list(map(json.loads, lines))
        return done

    def _start(self, flags: Sequence[str], into: Path) -> subprocess.Popen[str]:
        with (self.bin / "plan").open() as plan, into.open("w") as file:
            return subprocess.Popen(
                [self.bin / "python", *flags, WALK],
                env=bare(self),
                cwd="/",
                stdin=plan,
                stdout=file,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )


def required(extra: str) -> set[str]:
    """Return the packages of an extra, and of the extras that it is made of."""
    found: set[str] = set()
    for text in ALL_EXTRAS[extra]:
        if text.startswith("redrive["):
            inner = text.removeprefix("redrive[").rstrip("]").split(",")
            found |= set().union(*map(required, inner))
        else:
            name = re.match(r"[\w.-]+", text)
            assert name
            found.add(name[0].lower().replace("-", "_"))
    return found


def bare(environment: Environment, **more: str) -> dict[str, str]:
    """The variables of a shell in which little is set."""
    return {
        "PATH": f"{environment.bin}:/usr/bin:/bin",
        "HOME": str(Path.home()),
        "LANG": "C.UTF-8",
        **more,
    }


@pytest.fixture(scope="module")
def matrix() -> Iterator[Counter[tuple[str, str]]]:
    """Counts of calls by variant and kind."""
    counts: Counter[tuple[str, str]] = Counter()
    yield counts
    if file := os.environ.get("REDRIVE_TEST_MATRIX"):
        Path(file).write_text(table(counts))


def table(counts: Counter[tuple[str, str]]) -> str:
    """Return the counts in Markdown, with the variants as rows."""
    kinds = list(dict.fromkeys(kind for _, kind in counts))
    rows = [f"| variant | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for variant in dict.fromkeys(variant for variant, _ in counts):
        cells = " | ".join(str(counts[variant, kind] or "") for kind in kinds)
        rows.append(f"| {variant} | {cells} |")
    return "\n".join(rows) + "\n"


def pythons() -> list[str]:
    """The oldest Python that is supported, and the newest of those that are here."""
    newest = next((p for p in reversed(PYTHONS[1:]) if interpreter(p)), PYTHONS[-1])
    return [PYTHONS[0], newest]


@pytest.fixture(params=pythons(), scope="module")
def python(request: pytest.FixtureRequest) -> Path:
    found = interpreter(request.param)
    if found is None:
        pytest.skip(f"no Python {request.param} is here")
    return found


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="redrive_tests_") as found:
        yield Path(found)


def faults(calls: Sequence[dict[str, Any]]) -> list[str]:
    """Return what is wrong with calls that were made in one way of one environment."""
    found: list[str] = []
    for call in calls:
        where = f"{call['variant']}, {call['kind']}: {' '.join(call['arguments'])}"
        text = call["out"] + call["err"]
        if "Traceback" in text or ("Error:" in call["err"] and call["kind"] == "help"):
            found.append(f"{where}: {text[-2000:]}")
        elif wrong := fault(call):
            found.append(f"{where}: {wrong}: code {call['code']}: {text[-500:]}")
    return found


def fault(call: dict[str, Any]) -> str | None:
    """Return what is wrong with a call that ended without a traceback."""
    code, out, err = call["code"], call["out"], call["err"]
    words = call["arguments"]
    match call["kind"]:
        case "help":
            if code or err or not out.startswith("Usage: redrive"):
                return "no help"
            if any(map(too_wide, out.splitlines())):
                return "the help is too wide"
        case "completion" if code or err or not completes(words, out):
            return "no completion"
        case "empty" | "filled" as what:
            may_fail = words[0] == "check" or (what == "empty" and "ls" not in words)
            if code not in ({0, 1, 2} if may_fail else {0}):
                return "no list"
            if "--json" in words:
                list(map(json.loads, out.splitlines()))
        case "completion":
            pass
        case kind:
            extra = kind.removeprefix("needs ")
            if (code, out, err.count("\n")) != (64, "", 1):
                return "not refused in one sentence"
            if f"'redrive[{extra}]'" not in err:
                return "the sentence does not name the extra"
    return None


def too_wide(line: str) -> bool:
    """Return whether a line of help could have been wrapped, and was not."""
    is_example = "redrive " in line
    is_choice = " [" in line
    return len(line) > 80 and not is_example and not is_choice


def completes(words: Sequence[str], out: str) -> bool:
    """Return whether a shell got its script, or the options of a command."""
    if words[1] == "source":
        return "_REDRIVE_COMPLETE" in out
    return words[-1] != "--" or "--help" in out


@pytest.mark.parametrize("extra", ["", *ALL_EXTRAS])
def test_every_command_works_or_names_what_it_needs(
    python: Path,
    wheel: Path,
    extra: str,
    directory: Path,
    databases: tuple[str, str],
    matrix: Counter[tuple[str, str]],
) -> None:
    """0 tracebacks; the same help in every variant, also without docstrings."""
    environment = Environment(directory / "venv", python, wheel, extra)
    odd = directory / ODD
    odd.mkdir()
    calls = [call for call in needing(directory) if not environment.has(call.extra)]
    assert extra not in {call.extra for call in calls}
    plan = variants(odd, databases, calls, whole=not extra)

    walked = environment.walk(plan)

    wrong = [f"{name} {text}" for name in walked for text in faults(walked[name])]
    assert not wrong, "\n".join(wrong)
    helps: dict[str, set[str]] = defaultdict(set)
    for name, done in walked.items():
        for call in done:
            kind = (
                "needs an extra" if call["kind"].startswith("needs") else call["kind"]
            )
            variant = " ".join(filter(None, (call["variant"], name)))
            matrix[variant, kind] += 1
            if kind == "help":
                helps[" ".join(call["arguments"])].add(call["out"])
    assert [words for words, texts in helps.items() if len(texts) > 1] == []
    assert len(helps) > 100


def on_a_terminal(command: Sequence[str | Path], environment: Mapping[str, str]) -> str:
    """Run a command on a terminal of 80 columns. Returns what it shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    with subprocess.Popen(
        command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, cwd="/"
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # when the last writer has gone
            while read := os.read(ours, 10_000):
                shown += read
    os.close(ours)
    return f"{shown.decode()}code {process.returncode}"


def test_the_same_in_processes_of_their_own(
    python: Path,
    wheel: Path,
    directory: Path,
    databases: tuple[str, str],
    matrix: Counter[tuple[str, str]],
) -> None:
    """The program that is installed, also in a path with quotes, blanks and a dollar sign."""
    environment = Environment(directory / ODD, python, wheel, "")
    program: list[str | Path] = [environment.bin / "redrive"]
    usual = bare(environment, REDRIVE_DATABASE_URL=databases[1])
    nameless = {n: v for n, v in usual.items() if n not in NAMELESS}
    surroundings: dict[str, tuple[list[str | Path], dict[str, str]]] = {
        "plain": (program, usual),
        "ascii": (program, usual | {"PYTHONIOENCODING": "ascii"}),
        "latin-1": (program, usual | {"PYTHONIOENCODING": "latin-1"}),
        "80 columns": (program, usual | {"COLUMNS": "80"}),
        "no home": (program, nameless),
        "no locale": (program, usual | {"LC_ALL": "C", "PYTHONUTF8": "0"}),
        "-OO": ([environment.bin / "python", "-OO", "-m", "redrive"], usual),
    }
    targets = directory / "targets.yaml"
    targets.write_text("a.b: {url: 'https://shop.example/'}\n")
    worker = ("worker", "--until-empty", "--http-port", "0")
    expected = {
        ("--version",): 0,
        ("dlq", "ls"): 0,
        ("dlq", "groups"): 0,
        ("dlq", "show", "1"): 0,
        ("nonsense",): 64,
        ("console",): 64,
        (*worker, "--targets", str(targets)): 64,
    }

    for name, (start, variables) in surroundings.items():
        for arguments, code in expected.items():
            done = subprocess.run(
                [*start, *arguments],
                env=variables,
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                start_new_session=True,
            )
            said = (done.stdout + done.stderr).decode("latin-1")
            assert (name, done.returncode, "Traceback" in said) == (
                name,
                code,
                False,
            ), said
            matrix[name, "own process"] += 1
    for arguments in (("dlq", "ls"), ("--help",), ("top",), ("nonsense",)):
        shown = on_a_terminal([*program, *arguments], usual | {"PAGER": "cat"})
        assert "Traceback" not in shown
        assert shown.endswith("code 64" if arguments == ("nonsense",) else "code 0")
        assert max(map(len, click.unstyle(shown).splitlines())) <= 80
        matrix["terminal of 80 columns", "own process"] += 1
