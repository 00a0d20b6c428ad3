"""Values by name, for rows and objects that have no class of their own."""

from collections.abc import Mapping
from typing import Any, TypedDict, cast

Row = dict[str, Any]
"""Row of the database by column, or an object of JSON by field."""

Fields = Mapping[str, Any]
"""Row, object of JSON, or options, which are only read."""


class Signed(TypedDict):
    """Arguments of each change for the audit log: who makes it, and why."""

    actor: str
    why: str


def fields_of(value: Any) -> Fields:
    """Return a stored JSON value if it is an object, else an empty one."""
    return cast("Fields", value) if isinstance(value, Mapping) else {}
