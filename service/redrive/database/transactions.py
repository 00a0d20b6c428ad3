"""Old transactions, which hold vacuum back."""

from typing import LiteralString, NamedTuple

from redrive.database.rows import Connection, first_record

_OLDEST: LiteralString = "select * from redrive.oldest_transactions_v1(1)"


class OldTransaction(NamedTuple):
    """Transaction that holds vacuum back; `prepared` is its name if it is prepared."""

    pid: int | None
    prepared: str | None
    login: str
    application: str
    state: str | None
    seconds: float

    @property
    def text(self) -> str:
        """Return a text that names it, with its age."""
        return f"{self._name}, open for {self.seconds:.0f} s,"

    @property
    def _name(self) -> str:
        if self.prepared is not None:
            return f"prepared transaction {self.prepared} of {self.login}"

        application = self.application or "no application name"
        return f"session {self.pid} of {self.login} ({application}, {self.state})"

    @property
    def end(self) -> str:
        """Return the statement that ends it."""
        if self.prepared is not None:
            quoted = self.prepared.replace("'", "''")
            return f"rollback prepared '{quoted}'"

        return f"select pg_terminate_backend({self.pid})"


def oldest_transaction(conn: Connection) -> OldTransaction | None:
    """Return the oldest transaction that holds vacuum back, or None."""
    return first_record(conn, OldTransaction, _OLDEST)
