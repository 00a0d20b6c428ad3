"""Values by name, for rows and objects that have no class of their own."""

from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]
"""Row of the database by column, or an object of JSON by field."""

Fields = Mapping[str, Any]
"""Row or object that is only read."""
