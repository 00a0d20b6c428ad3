"""Choice of a key's database among several, by rendezvous hashing.

Every language computes the same result.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256


def cell_of(
    key: str, cells: Iterable[str], *, moved: Mapping[str, str] | None = None
) -> str:
    r"""Return the name of the cell in which the jobs of a key are enqueued.

    The result is the cell with the greatest SHA-256 of its name, a NUL and the key in
    UTF-8: `printf 'eu\0customer-17' | sha256sum`. Neither order nor process matters,
    and keys spread evenly. A new cell takes an equal share from all others and moves no
    other key.

    Args:
        key: customer, tenant or account.
        cells: names of all cells.
        moved: cells of the keys that an operator has moved.

    Raises:
        TypeError: the key is not a text; 17 and "17" must not select different cells.
        ValueError: there is no cell, or the key was moved to a cell that is not there.
    """
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
        msg = f"key must be str, not {type(key).__name__}"
        raise TypeError(msg)

    names = tuple(cells)
    if not names:
        msg = "cells is empty; give the names of the databases"
        raise ValueError(msg)

    there = (moved or {}).get(key)
    if there is None:
        return max(names, key=lambda name: sha256(f"{name}\0{key}".encode()).digest())
    if there not in names:
        msg = f"moved has cell {there!r}; it must be one of {', '.join(names)}"
        raise ValueError(msg)

    return there


SEPARATOR = ":"


def id_in_cell(number: int, cell: str | None) -> str:
    """Return an id as people write it: eu:17, or 17 if there is only one database."""
    if not cell:
        return str(number)
    return f"{cell}{SEPARATOR}{number}"


def parted(written: str) -> tuple[str | None, str]:
    """Return the cell and the id of `eu:17`; the cell of `17` is None."""
    cell, separator, number = written.rpartition(SEPARATOR)
    if not separator:
        return None, written

    return cell, number
