"""Measure how a tree of Python reads: `python -m tools.measure [--json] [DIRECTORY]`.

A function is judged by the nodes of its body's syntax tree, without the docstring. A
nested function counts by itself and in its parent. The core is what stands outside of
ANNEXES. A trivial helper is private, has at most two statements, and one use.

`make check` fails if a figure of service/ is above its bound in tools/measure.json.
A bound is the target where it was reached, else what was reached, rounded up: a new
function of ordinary size is no failure. Lower a bound by hand after an improvement.
"""

import argparse
import ast
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
BOUNDS = ROOT / "tools" / "measure.json"
MAX_COLUMNS = 88
ANNEXES = ("redrive.extras", "redrive.celery", "redrive.django")
TRIVIAL = 2
SHOWN = 5

RELATIVES = {"what", "whatever", "whether", "which", "who", "whoever", "whom", "whose"}
POINTERS = {"those", "these", "that", "this", "it", "its", "such", "so"}
CONJUNCTIONS = {
    "as",
    "how",
    "if",
    "of",
    "since",
    "until",
    "up",
    "when",
    "where",
    "while",
}
SUBORDINATE = RELATIVES | POINTERS | CONJUNCTIONS
"""First words that make a docstring hard to read.

A docstring should begin with a verb or a noun phrase.
"""

Graph = dict[str, set[str]]
"""Module -> the modules of the same tree that it imports."""


class Module(NamedTuple):
    """File of the tree. A package has the name of its folder."""

    name: str
    path: Path
    lines: list[str]
    tree: ast.Module


class Figure(NamedTuple):
    """Name and its count."""

    count: int
    name: str


def modules(directory: Path) -> list[Module]:
    """Return every module below the directory.

    Raises:
        SyntaxError: a file is not valid Python.
    """
    is_package = (directory / "__init__.py").exists()
    root = directory.parent if is_package else directory
    return [_module(root, path) for path in sorted(directory.rglob("*.py"))]


def _module(root: Path, path: Path) -> Module:
    text = path.read_text()
    parts = path.relative_to(root).with_suffix("").parts
    is_package = parts[-1] == "__init__" and len(parts) > 1
    name = ".".join(parts[:-1] if is_package else parts)
    return Module(name, path, text.splitlines(), ast.parse(text, str(path)))


def functions(found: Iterable[Module]) -> list[Figure]:
    """Return the nodes of every function and method, the largest first."""
    counted = [
        figure for module in found for figure in _functions(module.tree, module.name)
    ]
    return sorted(counted, reverse=True)


def _functions(within: ast.AST, name: str) -> Iterator[Figure]:
    for node in ast.iter_child_nodes(within):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield Figure(_nodes(node), f"{name}.{node.name}")
                yield from _functions(node, f"{name}.{node.name}")
            case ast.ClassDef():
                yield from _functions(node, f"{name}.{node.name}")
            case _:
                yield from _functions(node, name)


def _nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return _count(_body(function))


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    has_docstring = ast.get_docstring(function, clean=False) is not None
    return function.body[1:] if has_docstring else function.body


def _count(body: list[ast.stmt]) -> int:
    return sum(1 for statement in body for _ in ast.walk(statement))


def imports(found: Iterable[Module]) -> Graph:
    """Return the imports of each module.

    Imports in functions and for type checkers count too.
    """
    by_name = {module.name: module for module in found}
    graph: Graph = {}
    for name, module in by_name.items():
        asked = (
            each for node in ast.walk(module.tree) for each in _asked(node, module)
        )
        graph[name] = {owner for each in asked if (owner := _owner(each, by_name))} - {
            name
        }
    return graph


def _asked(node: ast.AST, module: Module) -> Iterator[str]:
    """Yield the dotted names that a statement imports."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=source, names=names, level=level):
            base = _package(module, level) if level else []
            prefix = ".".join([*base, source] if source else base)
            yield from (f"{prefix}.{alias.name}" for alias in names)
        case _:
            pass


def _package(module: Module, level: int) -> list[str]:
    """Return the package that the dots of a relative import stand for."""
    parts = module.name.split(".")
    above = level - (module.path.name == "__init__.py")
    return parts[: len(parts) - above]


def _owner(name: str, known: Mapping[str, Module]) -> str | None:
    """Return the module that a dotted name is or belongs to."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def circles(graph: Graph) -> list[list[str]]:
    """Return groups of modules that import each other, directly or not."""
    reached = {name: _reached(graph, name) for name in graph}
    around = ({b for b in reached[a] if a in reached[b]} for a in graph)
    return sorted(map(list, {tuple(sorted(group)) for group in around if group}))


def _reached(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    ahead = graph[start]
    while ahead:
        found |= ahead
        ahead = set().union(*(graph[name] for name in ahead)) - found
    return found


def arrows(graph: Graph, place: Mapping[str, str]) -> int:
    """Return the number of pairs of places where one imports the other."""
    pairs = {(place[a], place[b]) for a, targets in graph.items() for b in targets}
    return sum(a != b for a, b in pairs)


def names_per_folder(directory: Path) -> list[Figure]:
    """Return the number of files and folders in each folder with Python.

    The fullest folder comes first.
    """
    counted = (
        Figure(len(_names(folder)), str(folder.relative_to(directory)))
        for folder in _folders(directory)
    )
    return sorted(counted, reverse=True)


def most_names(directory: Path) -> int:
    """Return the number of names in the fullest folder.

    A folder that mostly holds subfolders is left out: their names say what its files
    share.
    """
    names = map(_names, _folders(directory))
    return max((len(each) for each in names if not _is_mostly_folders(each)), default=0)


def _folders(directory: Path) -> set[Path]:
    """Return the folders with Python below the directory."""
    return {path.parent for path in directory.rglob("*.py")} - {directory}


def _names(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.iterdir()
        if not path.name.startswith((".", "__pycache__"))
    ]


def _is_mostly_folders(names: list[Path]) -> bool:
    return sum(path.is_dir() for path in names) > len(names) / 2


def measure(directory: Path) -> dict[str, Any]:
    """Return every figure, as `--json` shows it.

    The share of long lines refers to lines that are not blank.
    """
    found = modules(directory)
    return {
        **_size(directory, found),
        **_density(found),
        **_docstrings(found),
        **_lines([line for module in found for line in module.lines]),
        **_structure(directory, found),
    }


def _density(found: list[Module]) -> dict[str, Any]:
    """Return the number of all nodes, and the nodes per line of functions."""
    bodies = [body for module in found for body in _bodies(module.tree)]
    nodes = sum(_count(body) for body in bodies)
    lines = sum(_last_line(body) - body[0].lineno + 1 for body in bodies)
    return {
        "nodes": sum(1 for module in found for _ in ast.walk(module.tree)),
        "nodes_of_core": sum(
            1
            for module in found
            if not f"{module.name}.".startswith(tuple(f"{name}." for name in ANNEXES))
            for _ in ast.walk(module.tree)
        ),
        "nodes_per_line": round(nodes / max(1, lines), 2),
        "trivial_helpers": sum(len(trivial_helpers(module)) for module in found),
    }


def trivial_helpers(module: Module) -> list[str]:
    """Return the private functions with at most two statements and one use."""
    used = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    return [
        node.name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("_")
        and not node.name.startswith("__")
        and len(_body(node)) <= TRIVIAL
        and all(
            isinstance(each, ast.Expr | ast.Assign | ast.Return) for each in _body(node)
        )
        and used[node.name] == 1
    ]


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = _body(node)
            if body:
                yield body


def _last_line(body: list[ast.stmt]) -> int:
    return body[-1].end_lineno or body[-1].lineno


def _docstrings(found: list[Module]) -> dict[str, Any]:
    """Return the share of docstrings that begin with a word of SUBORDINATE."""
    first_words = [
        text.split()[0].strip("`*.,:").lower()
        for module in found
        for node in ast.walk(module.tree)
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        )
        and (text := ast.get_docstring(node))
    ]
    hard = sum(word in SUBORDINATE for word in first_words)
    return {
        "docstrings": len(first_words),
        "docstrings_hard_percent": round(100 * hard / max(1, len(first_words)), 1),
    }


def methods(found: Iterable[Module]) -> list[Figure]:
    """Count the methods of every class, the most first."""
    counted = [
        Figure(
            sum(
                isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                for each in node.body
            ),
            f"{module.name}.{node.name}",
        )
        for module in found
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    ]
    return sorted(counted, reverse=True)


def _size(directory: Path, found: list[Module]) -> dict[str, Any]:
    held = functions(found)
    nodes = sorted(figure.count for figure in held) or [0]
    files = (Figure(len(m.lines), str(m.path.relative_to(directory))) for m in found)
    return {
        "functions": len(held),
        "nodes_median": statistics.median(nodes),
        "nodes_p90": nodes[math.ceil(0.9 * len(nodes)) - 1],
        "nodes_max": nodes[-1],
        "nodes_of_fullest_functions": _by_name(held[:SHOWN]),
        "lines_of_biggest_files": _by_name(sorted(files, reverse=True)[:SHOWN]),
    }


def _lines(lines: list[str]) -> dict[str, Any]:
    filled = [line for line in lines if line.strip()]
    over = sum(len(line) > MAX_COLUMNS for line in filled)
    return {
        "lines": len(lines),
        "lines_over_88": over,
        "lines_over_88_percent": round(100 * over / max(1, len(filled)), 1),
        "fmt_skips": sum(line.endswith("# fmt: skip") for line in lines),
    }


def _structure(directory: Path, found: list[Module]) -> dict[str, Any]:
    graph = imports(found)
    folder = {m.name: str(m.path.parent.relative_to(directory)) for m in found}
    top = {name: ".".join(name.split(".")[:2]) for name in graph}
    return {
        "methods_of_biggest_classes": _by_name(methods(found)[:SHOWN]),
        "names_per_folder": _by_name(names_per_folder(directory)),
        "names_max": most_names(directory),
        "import_circles": circles(graph),
        "arrows_between_modules": sum(map(len, graph.values())),
        "arrows_between_names_at_the_top": arrows(graph, top),
        "arrows_between_folders": arrows(graph, folder),
    }


def _by_name(figures: Iterable[Figure]) -> dict[str, int]:
    return {figure.name: figure.count for figure in figures}


REPORT = """\
functions  {functions}; nodes: median {nodes_median:g}, p90 {nodes_p90}, max {nodes_max}
fullest    {nodes_of_fullest_functions}
nodes      {nodes}, of the core {nodes_of_core}; per line of a function: {nodes_per_line}
helpers    trivial with one use: {trivial_helpers}
lines      {lines}; over 88 columns: {lines_over_88} ({lines_over_88_percent} %); \
fmt: skip: {fmt_skips}
docstrings {docstrings}; beginning with a pronoun or a subordinate word: \
{docstrings_hard_percent} %
methods    {methods_of_biggest_classes}
biggest    {lines_of_biggest_files}
names      {names_per_folder}
arrows     {arrows_between_folders} between folders, {arrows_between_modules} between modules, \
{arrows_between_names_at_the_top} between names at the top
circles    {import_circles}"""


def report(figures: Mapping[str, Any]) -> str:
    """Return the figures for people."""
    return REPORT.format_map({name: _text(figure) for name, figure in figures.items()})


def _text(figure: object) -> object:
    match figure:
        case dict():
            return ", ".join(f"{name} {count}" for name, count in figure.items())
        case list():
            return "; ".join(" - ".join(circle) for circle in figure) or "none"
        case _:
            return figure


def judged(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures that may not get worse, by the names of tools/measure.json."""
    return {
        "nodes_of_core": figures["nodes_of_core"],
        "nodes": figures["nodes"],
        "nodes_p90": figures["nodes_p90"],
        "nodes_max": figures["nodes_max"],
        "lines_over_88_percent": figures["lines_over_88_percent"],
        "docstrings_hard_percent": figures["docstrings_hard_percent"],
        "methods_max": max(figures["methods_of_biggest_classes"].values(), default=0),
        "names_max": figures["names_max"],
        "trivial_helpers": figures["trivial_helpers"],
        "import_circles": len(figures["import_circles"]),
    }


def worse(figures: Mapping[str, float], bounds: Mapping[str, float]) -> list[str]:
    """Return a line for each figure that is above its bound."""
    return [
        f"{name} is {figure:g}; the bound is {bounds[name]:g}"
        for name, figure in figures.items()
        if figure > bounds[name]
    ]


def bounds() -> dict[str, float]:
    """Read tools/measure.json."""
    return json.loads(BOUNDS.read_text())


def main() -> None:
    """Measure, and print."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("directory", nargs="?", type=Path, default=ROOT / "service")
    options.add_argument("--json", action="store_true", help="for machines")
    chosen = options.parse_args()
    figures = measure(chosen.directory)
    print(json.dumps(figures, indent=2) if chosen.json else report(figures))


if __name__ == "__main__":
    main()
