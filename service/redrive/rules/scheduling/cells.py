"""Database of a key among several: rendezvous hashing, the same in every language."""

from collections.abc import Iterable
from hashlib import sha256


def cell_of(key: str, cells: Iterable[str]) -> str:
    r"""The name of the cell where the jobs of a key are enqueued.

    That with the greatest SHA-256 of its name, a NUL and the key in UTF-8:
    `printf 'eu\0customer-17' | sha256sum`. So neither order nor process matters, keys spread
    evenly, and a cell that is added takes its share from all others and moves nothing else.

    Raises:
        TypeError: the key is not text: 17 and "17" must not go to two places.
        ValueError: there is no cell.
    """
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
        msg = f"key must be str, not {type(key).__name__}"
        raise TypeError(msg)
    names = tuple(cells)
    if not names:
        msg = "cells is empty; give the names of the databases"
        raise ValueError(msg)
    return max(names, key=lambda name: sha256(f"{name}\0{key}".encode()).digest())
