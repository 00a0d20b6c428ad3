"""Documents of moved jobs: all rows of a job, under its id in another database."""

from collections.abc import Iterator
from typing import Any

import msgspec

from redrive.encryption import (
    SEALED,
    Keyring,
    Undecryptable,
    Whose,
    is_sealed,
    key_of,
    open_payload,
)

Row = dict[str, msgspec.Raw]
"""Row of a table. A value keeps its text, as a long number needs."""

_NOTED = {
    "failures": ("failure", "detail"),
    "side_effects": ("side effect", "detail"),
    "checkpoints": ("checkpoint", "data"),
}
"""Rows bound to the id of their job: their name in an envelope, and the column."""

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class _Document(msgspec.Struct):
    job: Row | None
    dead_letters: list[Row]
    failures: list[Row]
    side_effects: list[Row]
    checkpoints: list[Row]
    edits: msgspec.Raw
    was_done: bool


def renumbered(data: str, old: int, new: int, keyring: Keyring | None) -> str:
    """Return a document of `take_out_v1` as `put_in_v1` takes it.

    Encrypted parts are encrypted again, because they are bound to the id or accepted
    only once.

    Args:
        data: the document, as JSON.
        old: id of the job in the database that it left.
        new: its id in the other database.
        keyring: keys of this process; None = it has no keys.

    Raises:
        Undecryptable: the keyring is missing, or it does not have the key of a part.
    """
    if SEALED in data:
        data = _resealed(data, old, new, keyring)
    return f'{{"id": {new}, "source_id": {old}, {data[1:]}'


def _resealed(data: str, old: int, new: int, keyring: Keyring | None) -> str:
    document = _decode(data, type=_Document)
    for row in _with_payload(document):
        payload = _payload_again(row, old, keyring)
        row.update(payload)

    ids = (old, new)
    for name, (what, column) in _NOTED.items():
        rows = getattr(document, name)
        for row in rows:
            row[column] = _noted_again(row, what, column, ids, keyring)

    return _encode(document).decode()


def _with_payload(document: _Document) -> Iterator[Row]:
    if document.job is not None:
        yield document.job
    yield from document.dead_letters


def _payload_again(row: Row, job: int, keyring: Keyring | None) -> Row:
    envelope = _decode(row["payload"])
    if not is_sealed(envelope):
        return {}

    keys = _required(keyring, envelope, job)
    fields = {name: _decode(row[name]) for name in Whose._fields}
    whose = Whose.of(fields)
    headers = _decode(row["headers"])

    plain = open_payload(keys, envelope, whose, headers)
    sealed, salt = keys.seal_payload(plain, whose)

    return {
        "payload": _raw(sealed),
        "headers": _raw(headers | salt),
    }


def _noted_again(
    row: Row, what: str, column: str, ids: tuple[int, int], keyring: Keyring | None
) -> msgspec.Raw:
    old, new = ids
    envelope = _decode(row[column])
    if not is_sealed(envelope):
        return row[column]

    keys = _required(keyring, envelope, old)
    delivery = _decode(row["deliveries"])

    return _raw(keys.seal_again(envelope, what, old, delivery, moved_to=new))


def _required(keyring: Keyring | None, envelope: Any, job: int) -> Keyring:
    key = key_of(envelope)
    if keyring is None or key not in keyring.ids:
        msg = (
            f"job {job} is encrypted with key {key}, which is not here; set"
            " REDRIVE_ENCRYPTION_KEYS_FILE as for workers, and start the move again"
        )
        raise Undecryptable(msg)

    return keyring


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))
