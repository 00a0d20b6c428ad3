"""Services that the attempts of one runner share."""

import inspect
import os
import sys
from collections.abc import Callable
from contextvars import copy_context

from redrive.encryption import Keyring
from redrive.handlers import Handlers
from redrive.rules.attempts.failure import is_library
from redrive.rules.payloads.redact import secrets_of_environment
from redrive.worker.protocol import Checkpoint, Observed, Progress, SideEffect
from redrive.worker.run.dependencies import Dependencies
from redrive.worker.run.hooks import Hooks
from redrive.worker.run.leftovers import Leftovers
from redrive.worker.run.notes import NoteBook
from redrive.worker.run.threads import Threads

NO_APPLICATION = sys.stdlib_module_names | {"redrive"}
MOST_DESCRIBING = 8
"""Threads for texts of exceptions that take long, or that never end."""
MOST_KNOWN = 64
"""Most secrets of targets that are hidden in every record.

If there are more, each is hidden only in records of its own jobs. A search for
thousands would cost too much, and would hide most of every text.
"""


class Services:
    """Handlers, and what attempts need besides their jobs.

    Args:
        handlers: the registry.
        send: sends a message to the supervisor, from any thread.
        where: details of this process that every failure gets.
        keyring: opens payloads and seals failures; None = encryption is off.
        source_lines: lines of source to keep of each frame of the application.
        leaves_open: a test ends the transaction of `job.complete(conn)` itself.
    """

    def __init__(  # noqa: PLR0913 # what all attempts share
        self,
        handlers: Handlers,
        send: Callable[[SideEffect | Observed | Checkpoint | Progress], None],
        where: dict[str, str],
        keyring: Keyring | None = None,
        *,
        source_lines: int = 0,
        leaves_open: bool = False,
    ) -> None:
        self.handlers = handlers
        self.send = send
        self.where = where
        self.keyring = keyring
        self.source_lines = source_lines
        self.leaves_open = leaves_open

        self.secrets = secrets_of_environment(os.environ) | _known(handlers)
        # No record may show the keys, either.
        if keyring is not None:
            self.secrets |= keyring.secrets

        self.own = _own_packages(handlers)
        self.dependencies = Dependencies(send)
        self.notes = NoteBook(send)
        self.context = copy_context()
        """What each job starts with: the context after the handlers were loaded."""
        self.hooks = Hooks(handlers.on_dead, self.context)

        self.seed: str | None = None
        """Seed of `job.random` in a replay; else each attempt has its own."""
        self.on_error: Callable[[BaseException], None] | None = None
        """Gets the exception that ends an attempt, in a replay."""
        self.threads = Threads("handler")
        """For plain handlers: as many as have run at once, and no more than slots."""
        self.describing = Threads("describe", MOST_DESCRIBING)
        """For texts of exceptions, which may take any time."""
        self.leftovers = Leftovers(self.own, self.context)

    def close(self) -> None:
        """Let the threads end when they are done."""
        self.threads.close()
        self.describing.close()
        self.hooks.close()


def _known(handlers: Handlers) -> frozenset[str]:
    found = frozenset[str]().union(*(handler.known for handler in handlers))
    if len(found) <= MOST_KNOWN:
        return found

    return frozenset()


def _own_packages(handlers: Handlers) -> frozenset[str]:
    """Return the application's packages that are installed like libraries.

    These are the packages of its registry and of its handlers' functions. An
    application that runs from its own directory has none: that directory tells its
    frames apart.
    """
    functions = (inspect.unwrap(handler.function) for handler in handlers)
    modules = {
        handlers.module,
        *(getattr(function, "__module__", "") for function in functions),
    }
    return frozenset(
        package
        for module in modules
        if (package := module.partition(".")[0]) not in NO_APPLICATION
        and is_library(getattr(sys.modules.get(module), "__file__", None) or "")
    )
