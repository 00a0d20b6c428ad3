"""Parts of a page that the role's login may not read."""

from collections.abc import Callable
from typing import TypeVar

import psycopg

T = TypeVar("T")


def readable(read: Callable[[], T]) -> T | None:
    """Return what a function reads; None if the login may not read it."""
    try:
        return read()
    except psycopg.errors.InsufficientPrivilege:
        return None
