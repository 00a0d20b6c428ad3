"""Warnings about requested names that no job has had, which are usually typos."""

from collections.abc import Sequence

from redrive.cli.support.output import warn
from redrive.database.rows import Connection
from redrive.jobs.names import unknown


def say_unknown(conn: Connection, **names: Sequence[str]) -> bool:
    """Warn on stderr about requested names that no job has had; return if there are any.

    Commands call this when they found nothing.
    """
    is_unknown = False
    for what, given in names.items():
        for name in given:
            warning = unknown(conn, what, name)
            if warning is not None:
                warn(warning)
                is_unknown = True

    return is_unknown
