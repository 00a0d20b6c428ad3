"""File of several databases, each of them a cell; faults are errors of one line.

- {name: eu, url_file: /secrets/eu/url, role: redrive_viewer}
- {name: us, url: "postgresql://redrive@us.internal/redrive"}
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from redrive.database.connections.address import Address
from redrive.errors import SettingsError
from redrive.rules.yaml_text import UNREADABLE, first_fault, read_yaml, why_unreadable

VARIABLE = "REDRIVE_DATABASES"


class Cell(NamedTuple):
    """One of several databases.

    `console` maps a role of the console to its login there.
    """

    name: str
    address: Address
    console: Mapping[str, Address]


class _Login(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: Annotated[str, Field(repr=False)] = ""
    url_file: Path | None = None
    role: (
        Literal[
            "redrive_viewer", "redrive_operator", "redrive_worker", "redrive_producer"
        ]
        | None
    ) = None


class _Line(_Login):
    # The rule for queue names.
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]{0,62}$")]
    console: dict[Literal["viewer", "operator", "approver"], _Login] = Field(
        default_factory=dict
    )


_LINES = TypeAdapter(Annotated[list[_Line], Field(min_length=1)])
KEYS = ", ".join(("name", *_Login.model_fields, "console"))


def read(path: Path) -> tuple[Cell, ...]:
    """Read a file of cells.

    Raises:
        SettingsError: the file cannot be read, or a field is wrong. The text never
            shows a URL.
    """
    try:
        lines = _LINES.validate_python(_parsed(path))
    except ValidationError as error:
        # The library's error is not chained, because it quotes the values.
        raise _refused(path, _first_fault(error)) from None

    _refuse_equal_names(path, [line.name for line in lines])
    return tuple(_cell(path, line) for line in lines)


def _refuse_equal_names(path: Path, names: list[str]) -> None:
    if len(set(names)) == len(names):
        return

    twice = next(name for name in names if names.count(name) > 1)
    raise _refused(path, f"two cells are named {twice}")


def _first_fault(error: ValidationError) -> str:
    """Describe the first fault; after an unknown field, name the known ones."""
    fault = first_fault(error)
    if error.errors()[0]["type"] == "extra_forbidden":
        return f"{fault} (a cell has: {KEYS})"
    return fault


def _cell(path: Path, line: _Line) -> Cell:
    console = {
        role: _address(path, login, f"{line.name}: console.{role}")
        for role, login in line.console.items()
    }
    return Cell(
        name=line.name, address=_address(path, line, line.name), console=console
    )


def _address(path: Path, login: _Login, whose: str) -> Address:
    if bool(login.url) == bool(login.url_file):
        raise _refused(path, f"cell {whose} must have either url or url_file")

    file = login.url_file and path.parent / login.url_file
    return Address(
        url=login.url,
        file=file,
        variable=f"{VARIABLE}: cell {whose}: url",
        role=login.role,
    )


def _parsed(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UNREADABLE as error:
        raise _refused(path, why_unreadable(error)) from None

    if path.suffix != ".json":
        return _yaml(path, text)

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _refused(path, f"it is not valid JSON: {error}") from None


def _yaml(path: Path, text: str) -> Any:
    if not find_spec("yaml"):  # PyYAML comes with an extra
        why = "YAML needs pip install 'redrive[http]'; write JSON, named .json"
        raise _refused(path, why)

    try:
        return read_yaml(text)
    except UNREADABLE as error:
        raise _refused(path, why_unreadable(error)) from None


def _refused(path: Path, why: str) -> SettingsError:
    return SettingsError(f"{VARIABLE} is {path}; {why}")
