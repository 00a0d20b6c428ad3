"""What the report counts, on a tree that is small enough to count by hand."""

from pathlib import Path

import pytest

from tools.measure import functions, imports, measure, modules, report, worse


def write(tree: Path, **files: str) -> None:
    for name, text in files.items():
        path = tree / "app" / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path, __init__="")
    return tmp_path


def test_a_function_holds_the_nodes_of_its_body_without_its_docstring(tree: Path):
    write(tree, one='def f(a: int = 1) -> int:\n    """Say."""\n    return a\n')

    # Return, Name, Load
    assert functions(modules(tree)) == [(3, "app.one.f")]


def test_a_nested_function_counts_on_its_own_and_in_its_parent(tree: Path):
    write(tree, one="class A:\n    def f(self):\n        def g():\n            pass\n")

    # Of f: FunctionDef, arguments, Pass.
    assert functions(modules(tree)) == [(3, "app.one.A.f"), (1, "app.one.A.f.g")]


def test_every_way_to_import_is_seen(tree: Path):
    write(
        tree,
        one="import app.two\nfrom app import three\nimport os",
        two="def f():\n    from app.inner.four import g",
        three="if TYPE_CHECKING:\n    from .inner import four",
    )
    write(
        tree,
        **{
            "inner.__init__": "from .four import g",
            "inner.four": "from ..two import f",
        },
    )

    assert imports(modules(tree)) == {
        "app": set(),
        "app.one": {"app.two", "app.three"},
        "app.two": {"app.inner.four"},
        "app.three": {"app.inner.four"},
        "app.inner": {"app.inner.four"},
        "app.inner.four": {"app.two"},
    }


def test_a_package_can_be_measured_by_itself(tree: Path):
    write(tree, one="from app import two", two="")

    assert imports(modules(tree / "app"))["app.one"] == {"app.two"}


def test_circles_arrows_and_names_are_counted(tree: Path):
    write(
        tree,
        two="from app.inner import four",
        **{"inner.four": "from app.two import f"},
    )
    write(tree, **{"inner.__init__": ""})

    figures = measure(tree)

    assert figures["import_circles"] == [["app.inner.four", "app.two"]]
    assert figures["arrows_between_folders"] == 2
    assert figures["names_per_folder"] == {"app": 3, "app/inner": 2}


def test_a_folder_that_mostly_holds_subfolders_is_not_the_fullest(tree: Path):
    write(tree, **{f"{folder}.__init__": "" for folder in ("one", "two", "three")})
    write(tree, **{"one.inner": "", "one.other": ""})

    figures = measure(tree)

    assert figures["names_per_folder"]["app"] == 4
    assert figures["names_max"] == 3


def test_long_lines_are_a_share_of_those_that_are_not_blank(tree: Path):
    write(tree, one=f"{'a' * 89}\n\n{'b' * 88}  # fmt: skip\n\nc\nd\n")

    figures = measure(tree)

    assert (figures["lines"], figures["lines_over_88"], figures["fmt_skips"]) == (
        6,
        2,
        1,
    )
    assert figures["lines_over_88_percent"] == 50.0


def test_the_report_has_every_figure(tree: Path):
    assert "circles    none" in report(measure(tree))


def test_nodes_per_line_and_docstrings_are_counted(tree: Path):
    write(
        tree,
        one='def f():\n    """Return one."""\n    a = 1\n    return a\n',
        two='class A:\n    """Whoever asks."""\n\n    def f(self):\n        pass\n',
    )

    figures = measure(tree)

    # Assign, Name, Store, Constant; Return, Name, Load; Pass: on three lines
    assert figures["nodes_per_line"] == round(8 / 3, 2)
    assert (figures["docstrings"], figures["docstrings_hard_percent"]) == (2, 50.0)
    assert figures["methods_of_biggest_classes"] == {"app.two.A": 1}


def test_a_figure_that_got_worse_is_named():
    said = worse(
        {"nodes_p90": 120, "names_max": 20}, {"nodes_p90": 110, "names_max": 20}
    )

    assert said == ["nodes_p90 is 120; the bound is 110"]
