"""`redrive worker --reload`: watches the code of the handlers while somebody works on it."""

import importlib.util
import logging
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from redrive.errors import SettingsError
from redrive.handlers import search_working_directory
from redrive.rules.failure import is_library

logger = logging.getLogger("redrive.worker")


class CodeWatch:
    """Tells of changed files, from a thread of its own; `wake` is called when there are any.

    Raises:
        SettingsError: the library that watches is not installed.
    """

    def __init__(self, handlers: str, wake: Callable[[], None]) -> None:
        if importlib.util.find_spec("watchfiles") is None:
            msg = "--reload needs the reload extra; install it with: pip install 'redrive[reload]'"
            raise SettingsError(msg)
        self._root = code_of(handlers)
        self._wake = wake
        self._changed: deque[str] = deque()

    def start(self) -> None:
        """Watch from now on."""
        threading.Thread(target=self._watch, name="code-watch", daemon=True).start()
        logger.info("reloading when code changes", extra={"where": str(self._root)})

    def take(self) -> list[str]:
        """The files that have changed since it was asked last."""
        return sorted({self._changed.popleft() for _ in range(len(self._changed))})

    def _watch(self) -> None:
        from watchfiles import PythonFilter, watch  # noqa: PLC0415 # an extra, for developers

        for changes in watch(self._root, watch_filter=PythonFilter(), raise_interrupt=False):
            self._changed.extend(path for _, path in changes)
            self._wake()


def code_of(handlers: str) -> Path:
    """Where to watch: the directory that the registry's package is imported from.

    Its neighbours are the application's too, unless it is installed as libraries are.
    """
    search_working_directory()
    found = importlib.util.find_spec(handlers.partition(":")[0].partition(".")[0])
    if found is None:
        return Path.cwd()
    package = found.submodule_search_locations
    code = Path(package[0] if package else found.origin or ".").resolve()
    return code if is_library(str(code)) else code.parent
