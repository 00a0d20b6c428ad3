"""Watch of the handlers' code, for `redrive worker --reload`."""

import contextlib
import importlib.util
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path

from redrive.errors import SettingsError
from redrive.handlers import search_working_directory
from redrive.rules.attempts.failure import is_library

LOOK_MILLISECONDS = 1000

logger = logging.getLogger("redrive.worker")


class CodeWatch:
    """Watches the code in a thread of its own; `wake` is called after a change.

    It is made before the code is loaded, so a file that is saved meanwhile has changed
    too.

    Raises:
        SettingsError: the library that watches is not installed.
    """

    def __init__(self, handlers: str, wake: Callable[[], None]) -> None:
        if importlib.util.find_spec("watchfiles") is None:
            msg = "--reload needs the reload extra; install it with: pip install 'redrive[reload]'"
            raise SettingsError(msg)
        from watchfiles import PythonFilter  # noqa: PLC0415 # an extra, for developers

        self._root = code_of(handlers)
        self._filter = PythonFilter()
        self._loaded = self._saved()
        self._wake = wake
        self._changed: deque[str] = deque()

    def start(self) -> None:
        """Start to watch."""
        threading.Thread(target=self._watch, name="code-watch", daemon=True).start()
        logger.info("reloading when code changes", extra={"where": str(self._root)})

    def take(self) -> list[str]:
        """Return the files that have changed since the last call."""
        return sorted({self._changed.popleft() for _ in range(len(self._changed))})

    def _watch(self) -> None:
        from watchfiles import watch  # noqa: PLC0415 # as above

        looks = watch(
            self._root,
            watch_filter=self._filter,
            raise_interrupt=False,
            rust_timeout=LOOK_MILLISECONDS,
            yield_on_timeout=True,
        )
        seen = {path for _, path in next(looks, ())}  # from here on it misses nothing
        self._tell(seen | {path for path, _ in self._saved() ^ self._loaded})
        for changes in looks:
            self._tell({path for _, path in changes})

    def _tell(self, paths: Collection[str]) -> None:
        if paths:
            self._changed.extend(paths)
            self._wake()

    def _saved(self) -> set[tuple[str, int]]:
        """Return the watched files, and when each was saved."""
        from watchfiles import Change  # noqa: PLC0415 # as above

        found = set[tuple[str, int]]()
        for folder, folders, names in os.walk(self._root):
            folders[:] = set(folders).difference(self._filter.ignore_dirs)
            for file in (Path(folder, name) for name in names):
                with contextlib.suppress(OSError):  # gone meanwhile
                    if self._filter(Change.modified, str(file)):
                        found.add((str(file), file.stat().st_mtime_ns))
        return found


def code_of(handlers: str) -> Path:
    """Return the directory to watch: it contains the registry's package.

    All of it is the application's, unless the package is installed like a library.
    """
    search_working_directory()
    found = importlib.util.find_spec(handlers.partition(":")[0].partition(".")[0])
    if found is None:
        return Path.cwd()
    package = found.submodule_search_locations
    code = Path(package[0] if package else found.origin or ".").resolve()
    return code if is_library(str(code)) else code.parent
