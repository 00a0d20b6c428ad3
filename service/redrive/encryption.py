"""Encryption of payloads and failures in the database by AES-256-GCM.

The keys are kept elsewhere. The envelope `{"$redrive": {"k": key id, "n": nonce, "c":
ciphertext}}` replaces the value. Columns and SQL functions treat it like any other
JSON.

An envelope opens only at its own place. The record of a failure or a side effect is
bound to its job by GCM's additional data. Its delivery is part of the ciphertext. A
payload cannot be bound to an id, which is not known before the insert. It is bound to
its kind and to a header of its job, `2.<second>.<random>.<digest>`. The digest
identifies the job (`Whose`). The second and the random value let the database accept
the envelope only once (admit_envelopes.sql).
"""

import base64
import hashlib
import hmac
import os
import re
import stat
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from redrive.errors import RedriveError, SettingsError
from redrive.rules.payloads.limits import UNIQUE
from redrive.rules.rows import fields_of

MARK = "$redrive"
"""The only key of an envelope, and the name of the header with the job's random value.
"""

SEALED = f'{{"{MARK}": {{'
"""The beginning of an envelope as Postgres writes it."""

HIDDEN = "[encrypted]"
"""Text shown instead of a text that is sealed elsewhere."""

IN_CLEAR = (
    "environment",
    "version",
    "began",
    "pod",
    "node",
    "traceparent",
    "trace_id",
    "secret_fields",
    "retried_for",
    "window",
    "lasts",
)
"""Unencrypted parts of a failure's detail: places, names of secret fields, times."""

VERSION = "2."
"""Beginning of the header of an encrypted payload."""

LOOSE = stat.S_IRWXO | stat.S_IWGRP
"""Forbidden mode bits of a key file.

The group may read it, because Kubernetes mounts Secrets as root.
"""

KEYS, KEYS_FILE = "REDRIVE_ENCRYPTION_KEYS", "REDRIVE_ENCRYPTION_KEYS_FILE"
KEY_BYTES, NONCE_BYTES, SALT_BYTES = 32, 12, 16
MAKE_KEY = f"openssl rand -base64 {KEY_BYTES}"
_KEY_ID = re.compile(r"[A-Za-z0-9_.-]{1,63}")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Undecryptable(RedriveError):
    """The value is no envelope, its key is missing, or it was changed or moved."""


class Whose(NamedTuple):
    """The job that a payload is bound to: the parts known before the insert."""

    kind: str
    queue: str
    tenant: str | None = None
    idempotency_key: str | None = None
    ordering_key: str | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return the job of a row or of a future row."""
        whose = cls(*(row[name] for name in cls._fields))
        # The values that make a job unique are not known before the insert.
        if (whose.idempotency_key or "").startswith(UNIQUE):
            return whose._replace(idempotency_key=None)
        return whose

    def digest(self, second: str, random: str) -> str:
        """Return the end of the header that belongs to the job's payload."""
        parts = _encode((self, second, random))
        return _to_text(hashlib.sha256(parts).digest())


class Keyring:
    """Keys by id. The first key encrypts, and all keys decrypt."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """Take keys of 32 bytes.

        Raises:
            SettingsError: the crypto extra is not installed.
        """
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 # an extra
        except ImportError as error:
            msg = f"{KEYS_FILE} needs the crypto extra: pip install 'redrive[crypto]'"
            raise SettingsError(msg) from error

        self._ciphers = {name: AESGCM(key) for name, key in keys.items()}
        self.ids = tuple(keys)
        self._first = keys[self.ids[0]]
        texts = map(_to_text, keys.values())
        self.secrets = frozenset(text.rstrip("=") for text in texts)
        """Return the keys in their written form, for code that removes secrets from texts."""

    def seal(self, plain: bytes, *where: str) -> dict[str, Any]:
        """Return an envelope that opens only with the same `where`."""
        key = self.ids[0]
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._ciphers[key].encrypt(nonce, plain, _encode(where))
        return {MARK: {"k": key, "n": _to_text(nonce), "c": _to_text(sealed)}}

    def open(self, envelope: Any, *where: str) -> bytes:
        """Open an envelope.

        Raises:
            Undecryptable: its key is missing, it was changed, or `where` is not the
                place for which it was sealed.
        """
        key = key_of(envelope)
        cipher = self._ciphers.get(key or "")
        if cipher is None:
            raise Undecryptable(_unread(key))

        parts = envelope[MARK]
        try:
            return cipher.decrypt(
                _to_bytes(parts["n"]), _to_bytes(parts["c"]), _encode(where)
            )
        except Exception:  # noqa: BLE001 # InvalidTag, or any error by a handmade envelope
            msg = f"encrypted with key {key}, but it was changed, cut short or moved"
            raise Undecryptable(msg) from None

    def seal_record(
        self, record: Mapping[str, Any], what: str, job: int, delivery: int
    ) -> dict[str, Any]:
        """Return an envelope of a record about one delivery.

        The key `d` lets reencrypt find a record that was moved to another delivery.

        Args:
            record: content of the envelope.
            what: kind of record: failure, side effect, checkpoint, progress or result.
            job: id of the job.
            delivery: delivery of the job that the record is about.
        """
        sealed = self.seal(_encode({**record, "delivery": delivery}), what, str(job))
        return {MARK: {**sealed[MARK], "d": delivery}}

    def open_record(
        self, envelope: Any, what: str, job: int, delivery: int
    ) -> dict[str, Any]:
        """Open a record that `seal_record` sealed with the same arguments.

        Raises:
            Undecryptable: it is the record of another job or delivery, was changed, or
                its key is missing.
        """
        record = _decode(self.open(envelope, what, str(job)))
        if record.pop("delivery", None) != delivery:
            msg = f"encrypted with key {key_of(envelope)}, but for another delivery: it was moved"
            raise Undecryptable(msg)

        return record

    def seal_again(
        self, envelope: Mapping[str, Any], what: str, job: int, delivery: int
    ) -> dict[str, Any]:
        """Encrypt a record again by the first key.

        Args:
            envelope: the record.
            what: kind of record.
            job: id of its job.
            delivery: delivery of the job that it is about.

        Raises:
            Undecryptable: the record does not open.
        """
        record = self.open_record(envelope, what, job, delivery)
        return {**envelope, **self.seal_record(record, what, job, delivery)}

    def seal_payload(
        self, payload: bytes, whose: Whose
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the envelope of a payload (its JSON) and the header for it."""
        second = f"{time.time():.0f}"
        random = _to_text(os.urandom(SALT_BYTES))
        digest = whose.digest(second, random)
        salt = f"{VERSION}{second}.{random}.{digest}"

        return self.seal(payload, "payload", whose.kind, salt), {MARK: salt}

    def with_digest(self, envelope: dict[str, Any], plain: Any) -> dict[str, Any]:
        """Return the envelope with a digest that equal values share.

        The digest reveals nothing about the values.
        """
        return {MARK: {**envelope[MARK], "u": self.digest(plain)}}

    def digest(self, plain: Any) -> str:
        """Return a keyed digest: equal for equal values, useless without the key."""
        text = msgspec.json.encode(plain, order="sorted")
        return _to_text(hmac.digest(self._first, b"unique " + text, "sha256"))

    def seal_failure(
        self, record: Mapping[str, Any], job: int, delivery: int
    ) -> dict[str, Any]:
        """Return a failure's record, sealed except for IN_CLEAR."""
        detail = record["detail"]
        clear = {name: detail[name] for name in IN_CLEAR if name in detail}
        hidden = {name: detail[name] for name in detail if name not in clear}
        known = {"message": record["message"], "detail": hidden}
        sealed = self.seal_record(known, "failure", job, delivery)

        return {**record, "message": HIDDEN, "detail": clear | sealed}

    def seal_side_effect(
        self, what: str, detail: Any, job: int, delivery: int
    ) -> tuple[str, dict[str, Any]]:
        """Seal the side effect that a handler reported."""
        effect = {"what": what, "detail": detail}
        return HIDDEN, self.seal_record(effect, "side effect", job, delivery)


def open_noted(
    keyring: Keyring | None, value: dict[str, Any], what: str, job: int, delivery: int
) -> dict[str, Any]:
    """Open a record, sealed or plain.

    Raises:
        Undecryptable: it is sealed, and its key is missing or it was changed or moved.
    """
    if not is_sealed(value):
        return value
    return _required(keyring, value).open_record(value, what, job, delivery)


def shown_noted(
    value: dict[str, Any], what: str, job: int, delivery: int
) -> dict[str, Any]:
    """Return a record for display: opened, or with the reason why it is not."""
    try:
        return open_noted(configured(), value, what, job, delivery)
    except Undecryptable as error:
        return {MARK: str(error)}


@cache
def configured() -> Keyring | None:
    """Return the keyring of this process; None if encryption is off.

    The keys are read once, from REDRIVE_ENCRYPTION_KEYS or
    REDRIVE_ENCRYPTION_KEYS_FILE. They are not in the settings because producers, which
    have no settings, encrypt as well.

    Raises:
        SettingsError: a variable is set but its value cannot be used. Nothing is stored
            unencrypted then.
    """
    text = os.environ.get(KEYS)
    path = os.environ.get(KEYS_FILE)
    if text:
        return Keyring(read_keys(text, KEYS))
    if path:
        source = f"{KEYS_FILE} is {path}"
        return Keyring(read_keys(_read_file(path, source), source))

    return None


def _read_file(path: str, source: str) -> str:
    file = Path(path)
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        msg = f"{source}; it cannot be read: {why}"
        raise SettingsError(msg) from None

    if mode & LOOSE:
        fix = f"chmod 440 {path}, or for a Secret of Kubernetes defaultMode: 0440"
        msg = f"{source}; its mode {mode:04o} lets others read or change it: {fix}"
        raise SettingsError(msg)

    return text


def read_keys(text: str, source: str) -> dict[str, bytes]:
    """Return keys by id, in order, from lines of `id base64-of-32-bytes`.

    Empty lines and lines that begin with # are skipped.

    Raises:
        SettingsError: the message has `source`, the line and the fix, and never the
            key.
    """
    found: dict[str, bytes] = {}
    for number, words in _lines(text):
        fault = _fault(words, found)
        if fault:
            msg = f"{source}; line {number}: {fault}"
            raise SettingsError(msg)

        name, key = words
        found[name] = _to_bytes(key)

    if not found:
        msg = f'{source}; it holds no key; make one with: echo "k1 $({MAKE_KEY})"'
        raise SettingsError(msg)

    return found


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the words of each line that is not empty and no comment."""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            yield number, words


def key_of(value: Any) -> str | None:
    """Return the id of the key that sealed a value.

    None: the value is not encrypted, or its envelope is broken.
    """
    key = fields_of(fields_of(value).get(MARK)).get("k")
    if isinstance(key, str) and _KEY_ID.fullmatch(key):
        return key
    return None


def open_payload(
    keyring: Keyring | None, envelope: Any, whose: Whose, headers: Mapping[str, Any]
) -> bytes:
    """Return the JSON of a job's payload.

    Args:
        keyring: keys of this process; None = it has no keys.
        envelope: the payload: an envelope, or the JSON text of one.
        whose: the job.
        headers: the job's headers. They hold what binds the payload to the job.

    Raises:
        Undecryptable: the key is missing, or the payload was changed or moved.
    """
    if isinstance(envelope, str):
        try:
            envelope = _decode(envelope)
        except (msgspec.DecodeError, RecursionError):
            envelope = None  # `open` reports an unknown form

    salt = str(headers.get(MARK))
    payload = _required(keyring, envelope).open(envelope, "payload", whose.kind, salt)
    # The envelope opens only with its own salt. So the digest in the salt is genuine.
    if not _is_bound(salt, whose):
        msg = (
            f"encrypted with key {key_of(envelope)}, but for another job: it was moved"
        )
        raise Undecryptable(msg)

    return payload


def opened_text(row: Mapping[str, Any]) -> str:
    """Return the JSON of a stored payload, which `row` has as text.

    Raises:
        Undecryptable: its key is not here, or it was changed or moved.
    """
    text = row["payload"]
    if not text.startswith(SEALED):
        return text
    headers = fields_of(row["headers"])
    return open_payload(configured(), text, Whose.of(row), headers).decode()


def _is_bound(salt: str, whose: Whose) -> bool:
    match salt.split("."):
        case [version, second, random, digest]:
            return f"{version}." == VERSION and digest == whose.digest(second, random)
        case _:
            return False


def is_sealed(value: Any) -> bool:
    """Return True if the value is an envelope or contains one."""
    return isinstance(value, dict) and MARK in value


def without_mark(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return headers, or the detail of a failure, without the mark of encryption."""
    # A stored value may have any type.
    return {name: value for name, value in fields_of(headers).items() if name != MARK}


def shown_payload(row: Mapping[str, Any]) -> Any:
    """Return a payload for display: opened, or the reason why it cannot be opened."""
    payload = row["payload"]
    if not is_sealed(payload):
        return payload

    try:
        whose = Whose.of(row)
        return _decode(open_payload(configured(), payload, whose, row["headers"]))
    except Undecryptable as error:
        return {MARK: str(error)}


def shown_failure(job: int, failure: Mapping[str, Any]) -> dict[str, Any]:
    """Return a failure for display, with its message and detail opened.

    If they cannot be opened, the message says why. The row has the failure's delivery.
    """
    detail = failure["detail"]
    if not is_sealed(detail):
        return dict(failure)

    clear = without_mark(detail)
    opened = _shown(detail, what="failure", job=job, delivery=failure["deliveries"])

    return {**failure, "message": opened["message"], "detail": clear | opened["detail"]}


def shown_side_effect(job: int, effect: Mapping[str, Any]) -> dict[str, Any]:
    """Return a side effect for display, like `shown_failure`."""
    if not is_sealed(effect["detail"]):
        return dict(effect)

    opened = _shown(
        effect["detail"], what="side effect", job=job, delivery=effect["deliveries"]
    )
    return {
        **effect,
        "what": opened.get("what", opened["message"]),
        "detail": opened["detail"],
    }


def _shown(envelope: Any, what: str, job: int, delivery: int) -> dict[str, Any]:
    try:
        keyring = _required(configured(), envelope)
        # The record of a side effect has no message.
        return {"message": ""} | keyring.open_record(envelope, what, job, delivery)
    except Undecryptable as error:
        return {"message": f"[{error}]", "detail": {}}


def _required(keyring: Keyring | None, envelope: Any) -> Keyring:
    if keyring is None:
        raise Undecryptable(_unread(key_of(envelope)))
    return keyring


def _unread(key: str | None) -> str:
    if key is None:
        return "encrypted in an unknown form"
    return f"encrypted with key {key}, which is not configured here"


def _fault(words: Sequence[str], known: Container[str]) -> str | None:
    """Describe the fault of a key line, without the key."""
    if len(words) != 2:  # noqa: PLR2004 # id and key
        return f"write an id and a key, with a space between; it has {len(words)} words"

    name, key = words
    if not _KEY_ID.fullmatch(name):
        return "the id must be 1 to 63 of A-Z a-z 0-9 _ . -; is it the key?"
    if name in known:
        return "this id is taken; give each key an id of its own"

    try:
        size = len(_to_bytes(key))
    except ValueError:
        return f"the key is not valid base64; make one with: {MAKE_KEY}"

    if size != KEY_BYTES:
        return f"the key has {size} bytes, not {KEY_BYTES}; make one with: {MAKE_KEY}"

    return None


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _to_bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
