"""Watch of the handlers' code, for `redrive worker --reload`."""

import contextlib
import importlib.util
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from redrive.handlers import search_working_directory
from redrive.rules.attempts.failure import is_library

LOOK_SECONDS = 1.0
IGNORED = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
"""Directories that are not watched, and all whose name begins with a dot."""

logger = logging.getLogger("redrive.worker")


class CodeWatch:
    """Watches the code in a thread of its own; `wake` is called after a change.

    It is made before the code is loaded, so a file that is saved meanwhile has changed
    too. With the extra `reload`, the system reports changes at once. Otherwise, the
    files are looked at every second.
    """

    def __init__(self, handlers: str, wake: Callable[[], None]) -> None:
        self._root = code_of(handlers)
        self._loaded = self._saved()
        self._wake = wake
        self._changed: deque[str] = deque()

    def start(self) -> None:
        """Start to watch."""
        has_extra = importlib.util.find_spec("watchfiles") is not None
        watch = self._watch if has_extra else self._look
        threading.Thread(target=watch, name="code-watch", daemon=True).start()
        logger.info("reloading when code changes", extra={"where": str(self._root)})

    def take(self) -> list[str]:
        """Return the files that have changed since the last call."""
        return sorted({self._changed.popleft() for _ in range(len(self._changed))})

    def _watch(self) -> None:
        from watchfiles import watch  # noqa: PLC0415 # an extra, for developers

        looks = watch(
            self._root,
            watch_filter=lambda _, path: self._is_code(path),
            raise_interrupt=False,
            rust_timeout=round(LOOK_SECONDS * 1000),
            yield_on_timeout=True,
        )
        first = next(looks, ())  # from here on it misses nothing
        self._tell(self._saved() ^ self._loaded)

        for changes in chain([first], looks):
            self._tell((path, 0) for _, path in changes)

    def _look(self) -> None:
        """Compare the files with the last look, again and again."""
        before = self._loaded
        while True:
            saved = self._saved()
            self._tell(saved ^ before)
            before = saved
            time.sleep(LOOK_SECONDS)

    def _tell(self, changed: Iterable[tuple[str, int]]) -> None:
        paths = {path for path, _ in changed}
        if paths:
            self._changed.extend(paths)
            self._wake()

    def _is_code(self, path: str) -> bool:
        """Return True if a file below the root is code of the application."""
        *folders, name = Path(path).relative_to(self._root).parts
        if not name.endswith((".py", ".pyi", ".pyx")):
            return False

        return not any(map(_ignored, folders))

    def _saved(self) -> set[tuple[str, int]]:
        """Return the watched files, and when each was saved."""
        found = set[tuple[str, int]]()
        for file in self._files():
            if not self._is_code(str(file)):
                continue

            with contextlib.suppress(OSError):  # gone meanwhile
                saved_ns = file.stat().st_mtime_ns
                found.add((str(file), saved_ns))

        return found

    def _files(self) -> Iterator[Path]:
        """Yield the files below the root, except in folders that are ignored."""
        for folder, folders, names in os.walk(self._root):
            # The walk enters only the folders that are left in the list.
            folders[:] = [name for name in folders if not _ignored(name)]

            for name in names:
                yield Path(folder, name)


def _ignored(folder: str) -> bool:
    return folder in IGNORED or folder.startswith(".")


def code_of(handlers: str) -> Path:
    """Return the directory to watch: it contains the registry's package.

    All of it is the application's, unless the package is installed like a library.
    """
    search_working_directory()
    found = importlib.util.find_spec(handlers.partition(":")[0].partition(".")[0])
    if found is None:
        return Path.cwd()

    # A package has a directory, and a module has a file.
    package = found.submodule_search_locations
    code = Path(package[0] if package else found.origin or ".").resolve()

    if is_library(str(code)):
        return code

    return code.parent
