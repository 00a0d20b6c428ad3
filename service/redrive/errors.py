"""Every exception Redrive raises. What a handler raises to steer its job is in `signals`."""


class RedriveError(Exception):
    """The base of every error that Redrive raises."""


class SettingsError(RedriveError):
    """A setting cannot be used; the text says which, what it holds and what is allowed."""


class CannotImport(SettingsError):
    """The registry of handlers cannot be imported; the lines of the text say where that failed."""


class SchemaError(RedriveError):
    """The database's schema is missing, too old or too new for this program."""


class SchemaTooNew(SchemaError):
    """The schema was made by a newer program; this one must be upgraded."""


class Busy(RedriveError):
    """Another run holds the lock."""


class InvalidJob(RedriveError, ValueError):
    """A job cannot be enqueued.

    Attributes:
        path: where the fault is, e.g. `payload.items[3].price`, `kind`.
        rule: what is allowed there.
    """

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(f"{path}: {rule}")
        self.path = path
        self.rule = rule


class StaleClaim(RedriveError):
    """The job is no longer this worker's: it has ended, or another worker has claimed it."""
