"""What the pages show is there: each command, option, variable, target, file and value of them."""

import json
import pkgutil
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from redrive.cli.main import cli
from redrive.database.connections import cells
from redrive.extras.gateway import file as gateway
from redrive.extras.targets import file as targets
from redrive.settings import PREFIX, Settings
from tests import pages
from tests.commands import commands
from tests.pages import ROOT, Block

SHELL = ("sh", "bash", "console")
CHART = ROOT / "helm" / "redrive"
DEFAULTS = yaml.load((CHART / "values.yaml").read_text(), yaml.CSafeLoader)
QUICKSTART = ROOT / "service" / "redrive" / "extras" / "quickstart" / "project"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
OTHERS = """
[ . alias aws break cd comm cosign curl docker done echo for gh grep install journalctl jq kind kubectl
openssl pg_dump pg_dumpall pg_restore promtool psql r read ready redis-cli redrive sed seq sha256sum sort sql tac
systemctl tail umask useradd xargs
"""
"""Whose arguments are theirs, or are looked at by `parse`."""
OF_OTHERS = {
    "apiVersion",
    "metric_relabel_configs",
    "rule_files",
    "scrape_configs",
    "externalRules",
    "x-redrive",
}
"""What a YAML file of Kubernetes, Prometheus, Grafana or Compose begins with."""
PLACES = (
    "alerts/",
    "bench/",
    "dashboards/",
    "docs/",
    "helm/",
    "service/",
    "sql/",
    "tests/",
)
SHOWN_TO_OPERATORS = (
    "alerts/redrive.rules.yaml",
    "dashboards/dead-letters.json",
    "dashboards/overview.json",
    "dashboards/worker.json",
)
NEWEST = "\n## [".join(pages.pages()["CHANGELOG.md"].split("\n## [")[:2])
"""The changelog of older releases names what was there then."""
PAGES = pages.pages() | {"CHANGELOG.md": NEWEST}
INLINE = [
    (page, code)
    for page, text in PAGES.items()
    for code in re.findall(
        r"`([^`\n]+)`",
        re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL),
    )
]


def described(block: Block) -> str:
    return str(block)


@pytest.mark.parametrize("block", pages.blocks(*SHELL), ids=described)
def test_what_is_typed_is_understood(block: Block) -> None:
    text = pages.typed(block.shell)
    for words in pages.commands(text):
        program = Path(words[0]).name or "."
        check = PROGRAMS.get(program)
        assert check or program in OTHERS.split(), f"what is {program}?"
        if check:
            check(block, words[1:])
    for arguments in pages.arguments(text):
        parse(["-" if word.endswith(".jsonl") else word for word in arguments])


def parse(arguments: list[str]) -> None:
    """Let click do it."""
    group: click.Command = cli
    context = click.Context(cli, info_name="redrive")
    while (
        isinstance(group, click.Group)
        and arguments
        and not arguments[0].startswith("-")
    ):
        found = group.get_command(context, arguments[0])
        assert found is not None, f"there is no {arguments[0]}"
        group, context = (
            found,
            click.Context(found, parent=context, info_name=arguments.pop(0)),
        )
    group.make_context(context.info_name, arguments, parent=context.parent)


def helm(_block: Block, arguments: list[str]) -> None:
    """The chart is there, and each value."""
    for flag, given in pairwise(arguments):
        if flag == "--set":
            name, _, value = given.partition("=")
            validate(nested(name.split("."), yaml.safe_load(value)))
        if flag == "--values":
            # relative to the clone, to where the chart was unpacked, or to a project
            files = (ROOT / given, ROOT / "helm" / given, QUICKSTART / given)
            assert given.startswith("my-") or any(f.is_file() for f in files), given


def make(block: Block, arguments: list[str]) -> None:
    place = ROOT
    if arguments[0] == "-C":
        named = arguments[1]
        place = QUICKSTART if Path(named).name == "orders" else ROOT / named
        arguments = arguments[2:]
    elif block.page.startswith("examples/"):
        place = (ROOT / block.page).parent
    makefile = (place / "Makefile").read_text()
    for target in (word for word in arguments if "=" not in word):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), (
            f"{block}: make {target}"
        )


def python(block: Block, arguments: list[str]) -> None:
    """Its script or module is there."""
    here = (ROOT / block.page).parent
    first = arguments[1] if arguments[0] == "-m" else arguments[0]
    module = first.replace(".", "/")
    found = (here / first, ROOT / f"{module}.py", QUICKSTART / first)
    shown = f"```python\n# {first}\n" in PAGES[block.page]
    known = shown or first in {"http.server", "pytest", "venv"}
    assert known or any(map(Path.exists, found)), f"{block}: {first}"


def pip(_block: Block, arguments: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for named in re.findall(r"(?:redrive|\.)\[(.*?)\]", " ".join(arguments)):
        assert set(named.split(",")) <= extras.keys()


def pytest_itself(_block: Block, arguments: list[str]) -> None:
    assert all(
        (ROOT / word).exists() for word in arguments if word.startswith("tests/")
    )


PROGRAMS: dict[str, Callable[[Block, list[str]], None]] = {
    "helm": helm,
    "make": make,
    "python": python,
    "python3": python,
    "pip": pip,
    "pytest": pytest_itself,
}


def nested(path: list[str], value: Any) -> Any:
    return {path[0]: nested(path[1:], value)} if path else value


def validate(values: dict[str, Any]) -> None:
    """Whether these may be over the chart's own."""
    jsonschema.validate(merged(DEFAULTS, values), SCHEMA)


def merged(under: Any, over: Any) -> Any:
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    return under | {
        name: merged(under.get(name), value) for name, value in over.items()
    }


def test_what_is_typed_stands_in_a_block_of_a_shell() -> None:
    """Where a block names no language, nobody looks for commands."""
    typed = re.compile(r"^(\$ )?(helm|kubectl|make|redrive) \w", re.MULTILINE)

    assert [str(block) for block in pages.blocks("") if typed.search(block.text)] == []


def test_shells_can_read_it() -> None:
    """One shell for all: it only parses."""
    text = "\n".join(
        f"f{n}() {{ :\n{pages.typed(block.shell)}\n}}"
        for n, block in enumerate(pages.blocks(*SHELL))
    )
    said = subprocess.run(
        ["bash", "-n"], input=text, capture_output=True, text=True, check=False
    )

    assert said.stderr == ""


@pytest.mark.parametrize("block", pages.blocks("yaml"), ids=described)
def test_yaml_is_what_its_reader_takes(block: Block, tmp_path: Path) -> None:
    read = yaml.safe_load(block.text)
    file = tmp_path / "file.yaml"
    file.write_text(block.text)
    if isinstance(read, list):
        assert cells.read(file) if "name" in read[0] else "job_name" in read[0]
    elif read.keys() & {"targets", "allowed_hosts", "schedules"}:
        file.write_text(yaml.safe_dump({"allowed_hosts": [], "targets": {}} | read))
        targets.load(file)
    elif read.keys() & {"rabbitmq", "sqs"}:
        gateway.load(file)
    elif not read.keys() & OF_OTHERS:
        validate(read)


def test_commands_within_text() -> None:
    """Their options too; `a | b` are two of a group."""
    there = dict(commands())
    options = {
        name
        for command in there.values()
        for each in command.params
        for name in each.opts
    }
    for page, code in INLINE:
        ours = page == "docs/glossary.md" and code.startswith("--")
        assert not ours or code in options, (page, code)
        typed = code.removeprefix("r ").replace(" | ", "|")
        if typed.startswith("redrive ") and not typed.startswith("redrive --"):
            assert fault_of(typed.split(), there) is None, (page, code)


def texts_of(read: object) -> Iterator[str]:
    """Yield each text in what a JSON or YAML file holds."""
    match read:
        case str():
            yield read
        case dict():
            for value in read.values():
                yield from texts_of(value)
        case list():
            for value in read:
                yield from texts_of(value)
        case _:
            pass


@pytest.mark.parametrize("file", SHOWN_TO_OPERATORS, ids=str)
def test_commands_in_dashboards_and_alerts(file: str) -> None:
    """A dashboard told people to type an option that no command has."""
    there = dict(commands())
    read = yaml.safe_load((ROOT / file).read_text())
    for text in texts_of(read):
        without = re.sub(r"{{[^}]*}}", "17", pages.typed(text))
        for typed in re.findall(r"\bredrive [a-z][^`\n,;]*", without):
            words = [word.strip(".:)") for word in typed.split()]
            if f"redrive {words[1]}" in there:
                assert fault_of(words, there) is None, (file, typed)


def fault_of(words: list[str], there: dict[str, click.Command]) -> str | None:
    name, options_began = "redrive", False
    for word in words[1:]:
        group = name == "redrive" or isinstance(there[name], click.Group)
        options_began |= word.startswith("-")
        if group and not options_began:
            missing = [w for w in word.split("|") if f"{name} {w}" not in there]
            if missing:
                return f"{name} has no {missing}"
            name = f"{name} {word.split('|')[-1]}"
        elif word.startswith("--"):
            options = [
                o for p in there[name].params for o in (*p.opts, *p.secondary_opts)
            ]
            if word.partition("=")[0] not in (*options, "--help"):
                return f"{name} has no {word}"
    return None


def test_variables() -> None:
    variable = re.compile(rf"\b{PREFIX}[A-Z_]*[A-Z]\b")
    named = {name for text in PAGES.values() for name in variable.findall(text)}
    options = {p.envvar for _, command in commands() for p in command.params}
    known = {PREFIX + field.upper() for field in Settings.model_fields} | options
    elsewhere = {
        name
        for path in (
            ROOT / "Makefile",
            *(ROOT / "tests").rglob("*.py"),
            *(ROOT / "trials").rglob("*.py"),
        )
        if path != Path(__file__)
        for name in variable.findall(path.read_text())
    }

    assert named - known - elsewhere == set()


def test_targets_of_make_within_text() -> None:
    """And options of make, as in a block."""
    for page, code in INLINE:
        if code.startswith("make "):
            make(Block(page, 0, "", code), code.split("ARGS=")[0].split()[1:])


def test_files_within_text() -> None:
    for page, code in INLINE:
        if code.startswith(PLACES):
            name = code.partition(":")[0].split()[0].rstrip("/")
            assert any(any(at.glob(name)) for at in (ROOT, (ROOT / page).parent)), (
                page,
                code,
            )


FILES = {"py", "sql", "go", "php", "rb", "ts"}
"""Endings of files, which are no names in a package."""


def test_names_within_text() -> None:
    """Of the package, the database, metrics and the chart's values."""
    known = pages.pages()["docs/metrics.md"] + "".join(
        path.read_text()
        for place in ("sql", "alerts", "helm/redrive", "service/redrive/django")
        for path in (ROOT / place).rglob("*.*")
        if path.suffix not in {".md", ".pyc"}
    )
    known += "\n".join(
        re.findall(r"^create role \w+", "\n".join(PAGES.values()), re.MULTILINE)
    )
    words = {*re.findall(r"\w+", known), *re.findall(r"\w+(?:\.\w+)+", known)}
    for page, code in INLINE:
        # Functions of the page of one job: tests/contract/test_one_job.py
        if page == "docs/internals/one-job.md":
            continue
        for name in re.findall(r"\bredrive_[a-z0-9_]+", code):
            assert name.removesuffix("_count") in words, (page, name)
        (name,) = re.findall(r"^([a-z]\w+(?:\.\w+)+)(?:\(.*\))?$", code) or [""]
        first, _, last = name.partition(".")
        if first in SCHEMA["properties"] and last not in FILES:
            found = has(SCHEMA, name.split(".")) or name in words or importable(name)
            assert found or page == "CHANGELOG.md", (page, name)


def importable(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return False
    return True


def has(schema: dict[str, Any], path: list[str]) -> bool:
    """Whether a schema describes a value at this place."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rsplit("/", 1)[1]]
    if not path:
        return True
    named = {None: schema.get("additionalProperties")} | schema.get(
        "patternProperties", {}
    )
    choices = [schema.get("properties", {}).get(path[0]), *named.values()]
    return any(one and (one is True or has(one, path[1:])) for one in choices)
