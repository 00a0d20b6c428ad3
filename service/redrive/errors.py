"""Every exception that Redrive raises. Handlers raise exceptions of `signals`."""

from typing import Any


class RedriveError(Exception):
    """Base class of every error that Redrive raises."""


class SettingsError(RedriveError):
    """A setting is invalid; the message says what it holds and what is allowed."""


class CannotImport(SettingsError):
    """The registry of handlers cannot be imported; the message has the place."""


class SchemaError(RedriveError):
    """The database's schema is missing, too old or too new for this program."""


class SchemaTooNew(SchemaError):
    """The schema was made by a newer program; upgrade this program."""


class Busy(RedriveError):
    """Another run holds the lock."""


class InvalidJob(RedriveError, ValueError):
    """A job cannot be enqueued.

    Attributes:
        path: the place of the fault, e.g. `payload.items[3].price`, `kind`.
        rule: the rule for values at that place.
    """

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(f"{path}: {rule}")
        self.path = path
        self.rule = rule

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.rule)


class StaleClaim(RedriveError):
    """The worker no longer holds the job: it ended, or another worker claimed it."""
