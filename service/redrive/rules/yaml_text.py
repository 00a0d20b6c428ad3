"""Files of users: read their YAML, or say in a few words what is wrong.

A small file can stand for a very large value, because an alias repeats a part of it.
PyYAML also takes a key that is there twice, and the last one counts.
"""

from typing import Any

from pydantic import ValidationError

MOST_VALUES = 100_000
"""Most values of a file, after its aliases are replaced."""


class NotReadable(ValueError):
    """A text that is not YAML, or not YAML that we take; its text says why."""


UNREADABLE = (OSError, UnicodeDecodeError, NotReadable)
"""Errors of a file that cannot be read, as `why_unreadable` explains them."""


def why_unreadable(error: Exception) -> str:
    """Say why a file cannot be read."""
    match error:
        case OSError():
            return f"it cannot be read: {error.strerror}"
        case UnicodeDecodeError():
            return "it cannot be read: it is not text"
        case _:
            return str(error)


def first_fault(error: ValidationError) -> str:
    """Return the first wrong field and its fault, without its value."""
    faults = error.errors(include_input=False, include_url=False)
    first = faults[0]
    path = ".".join(map(str, first["loc"]))
    where = path or "the file"

    return f"{where}: {first['msg']}"


def read_yaml(text: str) -> Any:
    """Return the value of a text. PyYAML must be installed.

    Raises:
        NotReadable: the text is not valid YAML, or is too large or too deep, or has a
            key twice.
    """
    import yaml  # noqa: PLC0415 # it comes with an extra

    try:
        loader: Any = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None

        # Before any value is made, because aliases may stand for a huge one.
        _count(node, {})
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        why = f"it is not valid YAML{where}"
    except RecursionError:
        why = "it is nested too deeply"
    except NotReadable:  # a ValueError, too, and its text is for the user already
        raise
    except ValueError:
        why = "it has a number or a date that cannot be read"

    raise NotReadable(why)


def _count(node: Any, counted: dict[int, int]) -> int:
    """Return the number of values in a node, each alias counted again."""
    if id(node) in counted:
        if not counted[id(node)]:
            why = f"an alias at line {_line(node)} contains itself"
            raise NotReadable(why)

        return counted[id(node)]

    # Until its parts are counted, 0 marks a node that may contain itself.
    counted[id(node)] = 0
    if node.id == "mapping":
        _refuse_repeated_keys(node)
        parts: list[Any] = [part for pair in node.value for part in pair]
    elif node.id == "sequence":
        parts = node.value
    else:
        parts = []

    total = 1 + sum(_count(part, counted) for part in parts)
    if total > MOST_VALUES:
        why = f"it has more than {MOST_VALUES} values"
        raise NotReadable(why)

    counted[id(node)] = total
    return total


def _refuse_repeated_keys(mapping: Any) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in mapping.value:
        if key.id == "scalar":
            name = (key.tag, key.value)
        else:
            name = None
        if name in seen:
            why = f"the key at line {_line(key)} is there twice"
            raise NotReadable(why)

        if name:
            seen.add(name)


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1
