"""Tasks and threads that a job starts, and does not end.

A task factory notes which tasks a job starts. Threads have no such hook, so they are
counted. Libraries start tasks and threads that serve later jobs too, such as a
connection pool. So only tasks and threads that run the application's own code are
leftovers.
"""

import asyncio
import decimal
import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Coroutine
from contextvars import Context, ContextVar
from typing import Any
from weakref import WeakSet, ref

from redrive.rules.attempts.failure import is_installed
from redrive.worker.protocol import Work
from redrive.worker.run.own import warn

CLEAN_UP_EVERY = 1_000
MAX_NAMED = 1_000
"""Leftovers that are named once and not again, by kind and function."""

Started = list[ref[asyncio.Task[Any]]]

_started: ContextVar[Started | None] = ContextVar("redrive_started", default=None)


class Leftovers:
    """Tasks and threads that the jobs of one runner leave behind.

    Args:
        own: packages that belong to the application although they are installed like
            libraries.
        context: what each job starts with.
    """

    def __init__(self, own: Collection[str], context: Context) -> None:
        self._own = own
        self._decimal = next(
            (value for value in context.values() if isinstance(value, decimal.Context)),
            None,
        )
        self._threads = WeakSet[threading.Thread](threading.enumerate())
        self._count_threads = _counter_of_threads()
        self._thread_count = self._count_threads()
        self._filters = list(warnings.filters)
        self._recursion_limit = sys.getrecursionlimit()
        self._named = set[tuple[str, str]]()

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note from now on which tasks jobs start."""
        loop.set_task_factory(_start)  # pyright: ignore[reportArgumentType] # it makes tasks

    def begin(self) -> Started:
        """Return the list of the tasks that this task and its callees start.

        Call it in the context of the job.
        """
        # A copy of a context shares its values, and a handler may change this one.
        if self._decimal is not None:
            decimal.setcontext(self._decimal.copy())

        started: Started = []
        _started.set(started)
        return started

    def restore_limit(self) -> None:
        """Restore the recursion limit: the end of a job needs some depth, too."""
        if sys.getrecursionlimit() < self._recursion_limit:
            sys.setrecursionlimit(self._recursion_limit)

    def end(self, work: Work, started: Started, *, is_alone: bool) -> None:
        """End what a job has left: cancel its tasks, and name them and its threads once.

        Args:
            started: the tasks that the job has started.
            is_alone: no other job runs.
        """
        if is_alone and warnings.filters != self._filters:
            warnings.resetwarnings()
            warnings.filters[:] = self._filters  # pyright: ignore[reportIndexIssue] # it is a list
        if started:
            self._end_coroutines(work, started)
        if self._count_threads() != self._thread_count:
            self._name_threads(work)

    def _end_coroutines(self, work: Work, started: Started) -> None:
        left = [
            task
            for each in started
            if (task := each()) is not None
            and not task.done()
            and self._is_own(task.get_coro())
        ]
        for task in left:
            task.cancel()

        names = [f"{_name(task.get_coro())} ({task.get_name()})" for task in left]
        self._say("a job left tasks behind, which are cancelled", work, names)

    def _name_threads(self, work: Work) -> None:
        known = self._threads
        threads = threading.enumerate()
        left = [t for t in threads if t not in known and self._is_own(_target(t))]
        self._threads = WeakSet(threads)
        self._thread_count = self._count_threads()

        names = [f"{_name(_target(each))} ({each.name})" for each in left]
        self._say("a job, or one beside it, left threads behind", work, names)

    def _say(self, text: str, work: Work, names: list[str]) -> None:
        if not names:
            return

        key = work.kind, names[0].partition(" ")[0]
        if key not in self._named and len(self._named) < MAX_NAMED:
            self._named.add(key)
            about = {"job": work.id, "kind": work.kind, "left": names[:10]}
            warn("%s: %s: %s", text, work.kind, names[0], **about)

    def _is_own(self, runs: Any) -> bool:
        """Return True if the function or coroutine is code of the application."""
        module, path = _place(runs)
        package = module.partition(".")[0]
        if package in self._own:
            return True

        is_ours = package == "redrive"
        # The threads of an executor wait for the next job on purpose.
        is_standard = path != "" and package in sys.stdlib_module_names
        return not (is_ours or is_standard or is_installed(path))


def _start(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    """Make a task, and note it if a job starts it.

    A task that gets a context of its own, such as an empty one, belongs to no job.
    """
    task = asyncio.Task(work, loop=loop, **options)
    context: Context | None = options.get("context")
    started = _started.get() if context is None else context.get(_started)
    if started is not None:
        if len(started) % CLEAN_UP_EVERY == CLEAN_UP_EVERY - 1:
            started[:] = [each for each in started if each() is not None]
        started.append(ref(task))

    return task


def _counter_of_threads() -> Callable[[], int]:
    """Return a function that counts threads without a lock, after each job."""
    active: dict[int, threading.Thread] | None = getattr(threading, "_active", None)
    return threading.active_count if active is None else active.__len__


def _target(thread: threading.Thread) -> Any:
    return getattr(thread, "_target", None) or type(thread).run


def _place(runs: Any) -> tuple[str, str]:
    """Return the module and the file of a function or a coroutine; empty if in C."""
    if inspect.iscoroutine(runs):
        frame = runs.cr_frame
        module = "" if frame is None else frame.f_globals.get("__name__", "")
        return str(module), runs.cr_code.co_filename

    function = inspect.unwrap(getattr(runs, "__func__", runs))
    code = getattr(function, "__code__", None)
    module = getattr(function, "__module__", None) or ""
    return module, "" if code is None else code.co_filename


def _name(runs: Any) -> str:
    return str(getattr(runs, "__qualname__", type(runs).__qualname__))
