"""Every exception Redrive raises. What a handler raises to steer its job is in `signals`."""


class RedriveError(Exception):
    """Something about Redrive itself went wrong."""


class SettingsError(RedriveError):
    """A setting is unusable; the text names the variable, what it holds and what is allowed."""


class SchemaError(RedriveError):
    """The database's schema is missing, too old or too new for this program."""


class SchemaTooNew(SchemaError):
    """The schema was made by a newer program; waiting cannot help."""


class Busy(RedriveError):
    """Another run holds the lock."""


class InvalidJob(RedriveError, ValueError):
    """A job that cannot be enqueued.

    Attributes:
        path: where the fault is, e.g. `payload.items[3].price`, `kind`.
        rule: what is allowed there.
    """

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(f"{path}: {rule}")
        self.path = path
        self.rule = rule

    @classmethod
    def from_text(cls, text: str) -> "InvalidJob":
        """Read the 'path: rule' that the database's own check raises (SQLSTATE RD001)."""
        path, _, rule = text.partition(": ")
        return cls(path, rule)


class StaleClaim(RedriveError):
    """The job is no longer this worker's: it was declared lost and somebody else has it, or it has
    ended.
    """
