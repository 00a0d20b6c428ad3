"""Write docs/python.md, the reference of the Python API, from signatures and docstrings.

Signatures are read from the source, where the formatter has wrapped them.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any

import redrive
import redrive.celery
import redrive.testing
from redrive.rules.payloads.job_fields import OPTIONS
from tools.generated import ROOT, Files, main

PAGE = ROOT / "docs" / "python.md"
WIDTH = 116
PARTS = {
    "Enqueue": (
        redrive,
        "enqueue enqueue_many JobOptions JobFields open_batch close_batch wait Ended",
    ),
    "Handle": (
        redrive,
        "Handlers Job JobFunction Policy Rule Category Schedule Heal idempotent",
    ),
    "Signals of a handler": (redrive, "Retry Snooze GiveUp Cancel"),
    "Set up": (redrive, "migrate cell_of"),
    "Errors": (redrive, "RedriveError InvalidJob StaleClaim"),
    "Test": (
        redrive.testing,
        (
            "run run_async Outcome Past run_enqueued run_enqueued_async enqueued"
            " assert_enqueued run_scheduled slots postgres"
        ),
    ),
    "Celery": (redrive.celery, "install sender"),
}
"""Names by part, in reading order."""

MADE_BY_US = frozenset({"Job", "JobFunction", "Ended", "Outcome"})
"""Classes whose objects a user gets and does not make."""

INTERNAL = frozenset(
    {
        "Handlers.add",
        "Handlers.get",
        "Handlers.known",
        "Job.completed_on",
        "Policy.without_rules",
        "Rule.matches",
        "testing.Past.seed_of_job",
    }
)
"""Methods that other modules of Redrive call, and users do not."""

HEAD = """\
# Python API

These are all names that you can import from `redrive`, `redrive.testing` and `redrive.celery`. Other modules may change
without notice. [Enqueue jobs](enqueue.md), [Handlers](handlers.md) and [Test your jobs](testing.md) show how to use
them. `redrive.django.jobs` is the registry of a [Django](../examples/django/README.md) project.

`make generate` writes this page from the docstrings. `SyncConnection` is a connection of psycopg, SQLAlchemy or Django.
`AsyncConnection` is one of psycopg, SQLAlchemy or asyncpg. `Seconds` is a timedelta or a number of seconds.
"""
SECTION = re.compile(
    r"^(Args|Attributes|Returns|Raises):\n((?: {4}.*\n|\n)+)", re.MULTILINE
)
LABELS = {"Args": "Arguments", "Attributes": "Attributes", "Raises": "Raises"}
ENTRY = re.compile(r"^(\*{0,2}\w[\w, ]*): ")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def page() -> str:
    """Return the whole page."""
    parts = (
        line
        for part, (module, names) in PARTS.items()
        for line in (
            f"\n## {part}\n",
            *(_described(module, name) for name in names.split()),
        )
    )
    return HEAD + "".join(parts)


def _described(module: Any, name: str) -> str:
    prefix = module.__name__.removeprefix("redrive").removeprefix(".")
    title = f"{prefix}.{name}" if prefix else name
    thing = getattr(module, name)
    text, tree = _parsed(thing.__module__)
    found = [node for node in tree.body if getattr(node, "name", None) == name]
    if isinstance(found[0], ast.ClassDef):
        return "".join(_class(title, found[0], text))
    return _function(
        f"### {title}", [n for n in found if isinstance(n, Function)], text
    )


@cache
def _parsed(module: str) -> tuple[str, ast.Module]:
    text = inspect.getsource(sys.modules[module])
    return text, ast.parse(text)


def _class(title: str, node: ast.ClassDef, text: str) -> Iterator[str]:
    yield f"\n### {title}\n"
    functions: dict[str, list[Function]] = {}
    for one in node.body:
        if isinstance(one, Function):
            functions.setdefault(one.name, []).append(one)

    fields = "".join(_fields(node, text))
    if fields:
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        head = f"class {node.name}({bases})" if bases else f"class {node.name}"
        yield f"\n```python\n{head}:\n{fields}```\n"
    elif "__init__" in functions and node.name not in MADE_BY_US:
        made = _signature(functions["__init__"][-1], text)
        made = made.replace("def __init__", node.name, 1).removesuffix(" -> None")
        yield f"\n```python\n{made}\n```\n"

    yield _markdown(ast.get_docstring(node) or "")
    if "__init__" in functions:
        yield _markdown(ast.get_docstring(functions["__init__"][-1]) or "", "Args")
    if node.name == "JobOptions":
        yield "\n"
        yield from (f"- `{name}`: {field.help}\n" for name, field in OPTIONS.items())

    for name, found in functions.items():
        place = f"{title}.{name}"
        if not name.startswith("_") and place not in INTERNAL:
            yield _function(f"#### {place}", found, text)


def _fields(node: ast.ClassDef, text: str) -> Iterator[str]:
    """Yield the lines of a class that declare its fields and its members."""
    for one in node.body:
        shown = ast.get_source_segment(text, one) or ""
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            declared = one.annotation
            if isinstance(declared, ast.Subscript) and isinstance(
                declared.slice, ast.Tuple
            ):
                is_noted = ast.unparse(declared.value) == "Annotated"
                first = ast.get_source_segment(text, declared.slice.elts[0])
                shown = f"{one.target.id}: {first}" if is_noted else shown
            name = one.target.id
        elif isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            name = one.targets[0].id
        else:
            continue
        if not name.startswith("_"):
            yield f"    {shown}\n"


def _function(heading: str, found: list[Function], text: str) -> str:
    """Return a function with all its signatures: the last one is of its body."""
    described = found[-1]
    overloads = found[:-1] or found
    kinds = {ast.unparse(one) for one in described.decorator_list}
    shown = [_signature(one, text) for one in overloads]
    if "property" in kinds:
        assert described.returns is not None  # noqa: S101 # all are annotated
        shown = [f"{described.name}: {ast.unparse(described.returns)}"]
    managers = {"contextmanager", "contextlib.contextmanager"}
    if kinds & managers:
        shown = [f"@contextmanager\n{one}" for one in shown]
    code = "\n".join(shown)
    doc = _markdown(ast.get_docstring(described) or "")
    return f"\n{heading}\n\n```python\n{code}\n```\n{doc}"


def _signature(node: Function, text: str) -> str:
    """Return the source of a signature, without its colon, comments and `self`."""
    assert node.returns is not None  # noqa: S101 # all are annotated
    lines = text.splitlines()[node.lineno - 1 : node.returns.end_lineno]
    lines[-1] = lines[-1].encode()[: node.returns.end_col_offset].decode()
    shown = textwrap.dedent("\n".join(lines))
    shown = re.sub(r" +# .*$", "", shown, flags=re.MULTILINE)
    return re.sub(r"(\(\n? *)self(?:,\n *|, |(?=\)))", r"\1", shown, count=1)


def _markdown(docstring: str, *only: str) -> str:
    """Return a docstring as Markdown; `only` some of its sections, if they are named."""
    docstring += "\n"
    prose = "" if only else _prose(SECTION.sub("", docstring))
    sections = (
        _section(name, textwrap.dedent(body).strip())
        for name, body in SECTION.findall(docstring)
        if not only or name in only
    )
    return prose + "".join(sections)


def _prose(text: str) -> str:
    """Return paragraphs, and indented lines as code."""
    made = ""
    for paragraph in re.split(r"\n\n(?! {4})", text.strip("\n")):
        plain, _, code = paragraph.partition("\n\n    ")
        if plain.startswith("    "):
            plain, code = "", plain[4:]
        if plain:
            made += f"\n{_wrapped(plain)}\n"
        if code:
            made += f"\n```python\n{textwrap.dedent('    ' + code)}\n```\n"
    return made


def _section(name: str, body: str) -> str:
    if name == "Returns":
        return f"\n{_wrapped('**Returns** ' + body)}\n"
    entries = re.split(r"\n(?! )", body)
    lines = "".join(f"{_entry(entry)}\n" for entry in entries)
    return f"\n**{LABELS[name]}**\n\n{lines}"


def _entry(entry: str) -> str:
    named = ENTRY.match(entry)
    assert named, entry  # noqa: S101 # a section of a docstring has names
    names = ", ".join(f"`{name}`" for name in named[1].split(", "))
    return _wrapped(f"- {names}: {entry[named.end() :]}", "  ")


def _wrapped(text: str, indent: str = "") -> str:
    words = " ".join(text.split())
    return textwrap.fill(
        words,
        WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def files() -> Files:
    """Return the page."""
    return {PAGE: page()}


if __name__ == "__main__":
    main(files)
