"""Source lines that are kept with a failure: around own frames, bounded, without secrets."""

from pathlib import Path
from typing import Any

import pytest

from redrive.observability.source import MAX_SOURCE_BYTES, MAX_SOURCE_LINE, with_source
from redrive.rules.attempts.failure import describe
from redrive.rules.attempts.stack import stack_lines
from redrive.rules.model import Failure

BOOK = """
def book(sku):
    stock = {}
    count = stock[sku]
    return count
"""


def frames(
    tmp_path: Path, source: str, *, lines: int = 3, secrets: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Return the stack of a failure of `book`, as a runner records it."""
    file = tmp_path / "shop.py"
    file.write_text(source)
    # Frames of code that is the same in the same module are taken for the same.
    module = f"shop.{tmp_path.name}"
    scope: dict[str, Any] = {"__name__": module}
    exec(compile(source, str(file), "exec"), scope)
    with pytest.raises(KeyError) as caught:
        scope["book"]("A7")

    failure = describe(caught.value, "order.book", secrets=secrets)
    stack: list[dict[str, Any]] = with_source(failure, lines, secrets).detail["stack"]
    return [frame for frame in stack if frame["module"] == module]


def test_the_line_of_a_frame_is_kept_with_the_lines_around_it(tmp_path: Path) -> None:
    (frame,) = frames(tmp_path, BOOK)

    assert frame["first_line"] == 3
    assert frame["source"] == ["stock = {}", "count = stock[sku]", "return count"]
    assert list(stack_lines([frame])) == [
        f"{tmp_path}/shop.py:4 in book",
        "       3  stock = {}",
        "  >    4  count = stock[sku]",
        "       5  return count",
    ]


def test_a_cause_shows_the_lines_where_it_was_raised(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "def count(sku):\n    return {}[sku]\n\n"
        "def book(sku):\n    try:\n        count(sku)\n"
        "    except KeyError as error:\n        raise ValueError(sku) from error\n"
    )
    scope: dict[str, Any] = {"__name__": f"shop.{tmp_path.name}"}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    with pytest.raises(ValueError, match="A7") as caught:
        scope["book"]("A7")

    failure = with_source(describe(caught.value, "order.book"), 1, ())

    (cause,) = failure.detail["causes"]
    assert list(stack_lines(cause["stack"])) == [
        f"{file}:6 in book",
        "  >    6  count(sku)",
        f"{file}:2 in count",
        "  >    2  return {}[sku]",
    ]


def test_the_number_of_lines_is_a_setting(tmp_path: Path) -> None:
    (none,) = frames(tmp_path, BOOK, lines=0)
    (one,) = frames(tmp_path, BOOK, lines=1)
    (all_of_them,) = frames(tmp_path, BOOK, lines=15)

    assert "source" not in none
    assert one["source"] == ["count = stock[sku]"]
    assert all_of_them["first_line"] == 1
    assert all_of_them["source"] == BOOK.rstrip().split("\n")


def test_secrets_are_not_in_the_source(tmp_path: Path) -> None:
    key = "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"
    source = BOOK.replace("stock = {}", f"stock = {{}}; key = '{key}'")
    source = source.replace("return count", "return 'horse-battery-9'")

    (frame,) = frames(tmp_path, source, secrets=("horse-battery-9",))

    assert key not in str(frame)
    assert "horse-battery-9" not in str(frame)
    assert frame["source"][1] == "count = stock[sku]"


def test_the_end_of_a_key_is_hidden_although_its_beginning_is_not_kept(
    tmp_path: Path,
) -> None:
    body = "\n".join(f"aB3dE{n}fGh1jKLmN0pQ" for n in range(12))
    pem = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----"
    source = BOOK.replace("stock = {}", f'stock = {{}}; pem = """{pem}\n"""')

    (frame,) = frames(tmp_path, source, lines=5)

    assert "aB3dE" not in str(frame)
    lines = [text.strip() for text in frame["source"]]
    assert lines[-2:] == ["count = stock[sku]", "return count"]


def test_source_is_bounded(tmp_path: Path) -> None:
    long = BOOK.replace("return count", f"return '{'word ' * 1_000}'")
    (frame,) = frames(tmp_path, long)
    assert max(map(len, frame["source"])) < MAX_SOURCE_LINE + 50

    file = str(tmp_path / "wide.py")
    Path(file).write_text("\n".join(["x = '" + "word " * 35 + "'"] * 400))
    stack = [{"file": file, "line": n, "own": True} for n in range(20, 300, 20)]
    failure = Failure(
        "E", "", describe(KeyError(), "k").category, "f", {"stack": stack}
    )
    kept = with_source(failure, 15, ()).detail["stack"]

    size = sum(len(line) for frame in kept for line in frame.get("source", ()))
    assert 0 < size <= MAX_SOURCE_BYTES
    assert "source" in kept[-1]
    assert "source" not in kept[0]
    assert [frame["line"] for frame in kept] == [frame["line"] for frame in stack]


@pytest.mark.parametrize("file", ["/dev/zero", "/no/such.py", "<string>", "notes.txt"])
def test_only_files_of_python_are_read(file: str) -> None:
    stack = [{"file": file, "line": 1, "own": True}]
    failure = Failure(
        "E", "", describe(KeyError(), "k").category, "f", {"stack": stack}
    )

    assert with_source(failure, 3, ()).detail["stack"] == stack


def test_many_frames_of_libraries_are_shown_as_their_number() -> None:
    own = {"file": "shop.py", "line": 3, "function": "book", "own": True}
    driver = {"file": "driver.py", "line": 9, "function": "call", "own": False}

    assert list(stack_lines([own, *[driver] * 9])) == [
        "shop.py:3 in book",
        "(7 more of libraries)",
        *["driver.py:9 in call"] * 2,
    ]
