"""Signatures of id, instant and body by the Standard Webhooks specification.

While keys are rotated, each request has a signature by each key. The receiver accepts
any of them.
"""

import base64
import hmac
from collections.abc import Iterator, Sequence
from pathlib import Path

from redrive.errors import SettingsError

PREFIX = "whsec_"
MIN_KEY_BYTES, MAX_KEY_BYTES = 24, 64
RULE = (
    f"a key is {PREFIX} and the base64 of {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes, one"
    f' per line; make one with: echo "{PREFIX}$(openssl rand -base64 32)"'
)


def read_keys(path: Path) -> tuple[bytes, ...]:
    """Return the keys of a file, in order.

    Raises:
        SettingsError: the file cannot be read, has no keys, or has an invalid line.
    """
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _refused(path, f"it is not text; {RULE}") from None

    keys = tuple(_keys(path, lines))
    if not keys:
        raise _refused(path, f"it holds no key; {RULE}")

    return keys


def _keys(path: Path, lines: Sequence[str]) -> Iterator[bytes]:
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue

        key = _decoded(line)
        if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
            raise _refused(path, f"line {number} holds no key; {RULE}")

        yield key


def _decoded(line: str) -> bytes:
    """Return the bytes of a key; empty if its format is wrong."""
    if not line.startswith(PREFIX):
        return b""

    try:
        return base64.b64decode(line.removeprefix(PREFIX), validate=True)
    except ValueError:
        return b""


def _refused(path: Path, why: str) -> SettingsError:
    return SettingsError(f"REDRIVE_TARGETS: signing_key_file is {path}; {why}")


def signed(keys: Sequence[bytes], message: str, at: int, body: bytes) -> dict[str, str]:
    """Return the headers for a request.

    Args:
        message: the id of the message, the same for every attempt. It must not contain
            full stops, which separate the signed parts.
        at: time of sending, in Unix seconds.
    """
    content = f"{message}.{at}.".encode() + body
    digests = [hmac.digest(key, content, "sha256") for key in keys]
    signatures = [f"v1,{base64.b64encode(digest).decode()}" for digest in digests]
    return {
        "webhook-id": message,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(signatures),
    }
