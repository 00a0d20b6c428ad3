"""Conversion of a pydantic model to JSON values that its own handler can read."""

from collections.abc import Iterable
from typing import Any, cast

SHOWN_FOR_SECRETS = "**********"
"""Text that pydantic writes for a SecretStr."""


def dump_model(value: Any) -> Any:
    """Return a model as JSON values with its secrets; anything else unchanged."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        return value

    how = {"by_alias": True, "round_trip": True, "warnings": False}
    return _revealed(dump(mode="json", **how), dump(**how))


def _revealed(shown: Any, kept: Any) -> Any:
    """Return the dump `shown` with the secrets from `kept`, a dump of Python values."""
    if shown == SHOWN_FOR_SECRETS and hasattr(kept, "get_secret_value"):
        return _text_of(kept.get_secret_value())

    if isinstance(shown, dict) and isinstance(kept, dict):
        # Paired by position, because only one of the dumps has all keys as texts.
        fields = cast("dict[str, Any]", shown)
        twins = cast("dict[Any, Any]", kept)
        values = _each(list(fields.values()), list(twins.values()))

        return dict(zip(fields, values, strict=True))

    if isinstance(shown, list) and isinstance(kept, (list, tuple)):
        items = cast("list[Any]", shown)
        return _each(items, list(cast("Iterable[Any]", kept)))

    return cast("Any", shown)


def _text_of(secret: Any) -> Any:
    if isinstance(secret, bytes):
        return secret.decode()
    return secret


def _each(shown: list[Any], kept: list[Any]) -> list[Any]:
    if len(shown) != len(kept):  # a field's own serializer changed it
        return shown

    return [_revealed(value, twin) for value, twin in zip(shown, kept, strict=True)]
