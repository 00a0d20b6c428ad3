"""The handlers of all apps, and a context around each call."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import wraps
from typing import Any

from django.utils.module_loading import autodiscover_modules

from redrive.django import jobs
from redrive.handlers import Handlers

Around = Callable[[], AbstractContextManager[None]]
Function = Callable[..., Any]
FUNCTIONS = ("function", "on_expired", "on_cancelled")
"""Fields of a handler that hold functions of the application."""


def collect() -> Handlers:
    """Import the module `jobs` of each app, and return the filled registry."""
    autodiscover_modules("jobs")
    return jobs


def within(around: Around, handlers: Handlers) -> Handlers:
    """Return the same handlers, each called within `around`.

    Handlers that are `async def` are not changed, because their queries run in threads
    of asgiref.
    """

    def wrapped(function: Function | None) -> Function | None:
        if function is None or inspect.iscoroutinefunction(function):
            return function

        @wraps(function)
        def call(*arguments: Any) -> Any:
            with around():
                return function(*arguments)

        return call

    found = Handlers(on_dead=wrapped(handlers.on_dead))
    found.breakers = handlers.breakers
    found.schedules = handlers.schedules

    for handler in handlers:
        functions = {name: wrapped(getattr(handler, name)) for name in FUNCTIONS}
        found.add(replace(handler, **functions))

    return found
