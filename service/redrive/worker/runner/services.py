"""Services that the attempts of one runner share."""

import inspect
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from redrive.encryption import Keyring
from redrive.handlers import Handlers
from redrive.rules.attempts.failure import is_library
from redrive.rules.payloads.redact import secrets_of_environment
from redrive.worker.protocol import Checkpoint, Observed, Progress, SideEffect
from redrive.worker.runner.dependencies import Dependencies
from redrive.worker.runner.hooks import Hooks
from redrive.worker.runner.notes import NoteBook

NO_APPLICATION = sys.stdlib_module_names | {"redrive"}
MOST_KNOWN = 64
"""So many secrets of targets are hidden everywhere; of more, each from its own jobs
alone.

All of a thousand could not be sought, and every text would be hidden whole.
"""


class Services:
    """Handlers, and whatever an attempt needs besides its job.

    Args:
        handlers: the registry.
        slots: attempts at once, and threads for handlers that are plain functions.
        send: takes a message to the supervisor, from any thread.
        where: what a failure's record says of this process.
        keyring: opens payloads and seals failures; None: encryption is off.
        leaves_open: the transaction of `job.complete(conn)` is a test's, which ends it.
    """

    def __init__(  # noqa: PLR0913 # what all attempts share
        self,
        handlers: Handlers,
        slots: int,
        send: Callable[[SideEffect | Observed | Checkpoint | Progress], None],
        where: dict[str, str],
        keyring: Keyring | None = None,
        *,
        leaves_open: bool = False,
    ) -> None:
        self.handlers = handlers
        self.send = send
        self.where = where
        self.keyring = keyring
        self.leaves_open = leaves_open
        self.secrets = secrets_of_environment(os.environ) | _known(handlers)
        if keyring is not None:
            self.secrets |= keyring.secrets
        self.own = _own_packages(handlers)
        self.dependencies = Dependencies(send)
        self.notes = NoteBook(send)
        self.hooks = Hooks(handlers.on_dead)
        self.threads = ThreadPoolExecutor(slots, thread_name_prefix="slot")

    def close(self) -> None:
        """Let the threads end when they are done."""
        self.threads.shutdown(wait=False)
        self.hooks.close()


def _known(handlers: Handlers) -> frozenset[str]:
    found = frozenset[str]().union(*(handler.known for handler in handlers))
    return found if len(found) <= MOST_KNOWN else frozenset()


def _own_packages(handlers: Handlers) -> frozenset[str]:
    """The application's packages that are installed as libraries are: its frames are
    there.

    Those of its registry and of its handlers' functions; an application that runs from
    its own directory has none, for that tells its frames from those of libraries.
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
