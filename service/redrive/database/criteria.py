"""Filters as dataclasses.

Each field is a condition in SQL and an option of the command line.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, LiteralString, get_type_hints

from redrive.rules.rows import Row


@dataclass(frozen=True, slots=True)
class Criterion:
    """Meaning of a field of a filter.

    Attributes:
        condition: SQL over the rows, with the value as its parameter; None = not a
            condition.
        help: help text of the option with this name.
        choices: allowed values, if they are a closed set; none = any value.
    """

    condition: LiteralString | None
    help: str
    choices: tuple[str, ...] = ()


class Criteria:
    """Base of a filter: a dataclass that annotates each field with a `Criterion`."""

    __slots__ = ()

    @classmethod
    @cache
    def criteria(cls) -> Mapping[str, Criterion]:
        """Return each field and its meaning, in the order of `--help`."""
        hints = get_type_hints(cls, include_extras=True)
        return {name: hint.__metadata__[0] for name, hint in hints.items()}

    def where(self, **found: object) -> tuple[LiteralString, list[Any]]:
        """Return the conditions as SQL, and their parameters, without the limit.

        Args:
            found: maps a field to the value that replaces its own, if that had to be
                looked up.
        """
        conditions: list[LiteralString] = ["true"]
        parameters: list[Any] = []

        for name, value in (self._given() | found).items():
            condition = self.criteria()[name].condition
            if condition is not None:
                conditions.append(condition)
                parameters.append(value)

        return " and ".join(conditions), parameters

    def narrows(self) -> bool:
        """Return True if any field besides state and limit is set."""
        return bool(self._given().keys() - {"state", "limit"})

    def described(self) -> Row:
        """Return the fields that are set, ready for JSON, for the audit log."""
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in self._given().items()
        }

    def _given(self) -> Row:
        values = ((name, getattr(self, name)) for name in self.criteria())
        return {
            name: value if isinstance(value, str | int | datetime) else list(value)
            for name, value in values
            if value
        }
