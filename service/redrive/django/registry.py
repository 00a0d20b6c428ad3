"""The handlers of all apps, and something around each of them."""

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


def collect() -> Handlers:
    """Import the module `jobs` of each app. Returns the registry that they filled."""
    autodiscover_modules("jobs")
    return jobs


def within(around: Around, handlers: Handlers) -> Handlers:
    """Return the same handlers, each called within `around`.

    Not those that are `async def`: what they ask of the database runs in threads of asgiref's.
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
    found.breakers, found.schedules = handlers.breakers, handlers.schedules
    for handler in handlers:
        functions = ("function", "on_expired", "on_cancelled")
        found.add(replace(handler, **{name: wrapped(getattr(handler, name)) for name in functions}))
    return found
