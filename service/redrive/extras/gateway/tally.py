"""Counts of messages sent back, which the runners write and the gateway's metrics read.

A count is the size of a file. A runner that is killed while it appends cannot spoil it.
"""

from contextlib import suppress
from pathlib import Path

VARIABLE = "REDRIVE_GATEWAY_TALLY"
"""Variable in which the gateway names its directory to its runners."""

SENT, SENT_AGAIN = "sent", "sent_again"
"""Names of the counts."""


class Tally:
    """Counts of each source, in a directory; without one, nothing is counted."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def add(self, name: str, kind: str) -> None:
        """Count one message. If the disk is full, it is not counted."""
        if self._directory is None:
            return

        with suppress(OSError), _path(self._directory, name, kind).open("ab") as file:
            file.write(b".")

    def count(self, name: str, kind: str) -> int:
        """Return the count of a source."""
        if self._directory is None:
            return 0

        try:
            return _path(self._directory, name, kind).stat().st_size
        except FileNotFoundError:
            return 0


def _path(directory: Path, name: str, kind: str) -> Path:
    return directory / f"{name}-{kind}"
