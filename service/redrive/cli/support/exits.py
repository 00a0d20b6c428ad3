"""Exit codes of commands, for scripts, Jobs and CronJobs."""

from enum import IntEnum
from typing import Self

from redrive.errors import RedriveError


class Exit(IntEnum):
    """Exit code and its meaning. Codes from 64 on are taken from sysexits.h."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """Create a member from its pair."""
        exit_code = int.__new__(cls, code)
        exit_code._value_ = code
        exit_code.meaning = meaning

        return exit_code

    DONE = 0, "done"
    FAILED = 1, "failed"
    NOTHING_MATCHED = 2, "nothing matched, but something had to"
    UNKNOWN = 3, "the outcome of the job is not on record"
    ABORTED = 4, "the campaign aborted: too many died again"
    USAGE = 64, "bad usage or settings"
    UNREACHABLE = 69, "the database cannot be reached"
    BUSY = 75, "another run holds the lock"
    SCHEMA = 78, "the schema is missing, too old or too new"


class NotFound(RedriveError):
    """The object that a command names does not exist."""
