"""The registry of handlers: which function runs which kind of job, with which payload type and policy."""

import inspect
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from redrive.errors import SettingsError
from redrive.limits import check_name
from redrive.policy import Policy

Function = TypeVar("Function", bound=Callable[..., Any])

TAKES_JOB = 2


@dataclass(frozen=True, slots=True)
class Handler:
    """One registered function. `read` turns the payload's JSON text into what the function takes."""

    kind: str
    function: Callable[..., Any]
    policy: Policy
    queue: str
    depends_on: tuple[str, ...]
    is_async: bool
    takes_job: bool
    payload_type: type | None = None
    read: Callable[[str], Any] = field(repr=False, default=lambda text: text)


class Handlers:
    """Handlers by kind.

    jobs = Handlers()

    @jobs.handle("invoice.charge", policy=Policy(max_attempts=8, timeout=30))
    async def charge(payload: Invoice, job: Job) -> None: ...
    """

    def __init__(self) -> None:
        self._by_kind: dict[str, Handler] = {}

    def handle(
        self,
        kind: str,
        *,
        queue: str = "default",
        policy: Policy | None = None,
        depends_on: Sequence[str] = (),
    ) -> Callable[[Function], Function]:
        """Register a function `(payload)` or `(payload, job)`, `def` or `async def`, for jobs of `kind`.

        `payload` is a dict, or the pydantic model it is annotated with. Returns the function unchanged.

        Raises:
            InvalidJob: the kind or the queue is no name.
            ValueError: the kind has a handler already, or the function takes something else.
        """
        check_name("kind", kind)
        check_name("queue", queue)

        def register(function: Function) -> Function:
            if kind in self._by_kind:
                msg = f"kind {kind!r} has a handler already: {self._by_kind[kind].function!r}"
                raise ValueError(msg)
            takes = _positional(function)
            if takes not in (1, TAKES_JOB):
                msg = f"the handler of {kind!r} must take (payload) or (payload, job), it takes {takes} arguments"
                raise ValueError(msg)
            payload_type, read = _reader(function)
            self._by_kind[kind] = Handler(
                kind=kind,
                function=function,
                policy=policy or Policy(),
                queue=queue,
                depends_on=tuple(depends_on),
                is_async=inspect.iscoroutinefunction(function),
                takes_job=takes == TAKES_JOB,
                payload_type=payload_type,
                read=read,
            )
            return function

        return register

    def include(self, other: "Handlers") -> None:
        """Add another registry's handlers, so that an application can keep one per module."""
        for handler in other:
            if handler.kind in self._by_kind:
                msg = f"kind {handler.kind!r} has a handler already"
                raise ValueError(msg)
            self._by_kind[handler.kind] = handler

    def get(self, kind: str) -> Handler | None:
        """The handler of a kind, or None."""
        return self._by_kind.get(kind)

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._by_kind.values())

    def __len__(self) -> int:
        return len(self._by_kind)


def load(target: str) -> Handlers:
    """Import the registry that `module:attribute` names.

    Raises:
        SettingsError: it cannot be imported, or is something else.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        msg = f"REDRIVE_HANDLERS is {target!r}; it must be module:attribute, e.g. app.jobs:jobs"
        raise SettingsError(msg)
    import importlib  # noqa: PLC0415 # only a runner pays for it
    import sys  # noqa: PLC0415

    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        msg = f"REDRIVE_HANDLERS is {target!r}; it cannot be imported: {error}"
        raise SettingsError(msg) from error
    if not isinstance(found, Handlers):
        msg = f"REDRIVE_HANDLERS is {target!r}; that is a {type(found).__name__}, not a Handlers registry"
        raise SettingsError(msg)
    return found


def _positional(function: Callable[..., Any]) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(p.kind in kinds and (p.default is p.empty or i < TAKES_JOB) for i, p in enumerate(parameters))


def _reader(function: Callable[..., Any]) -> tuple[type | None, Callable[[str], Any]]:
    """How to read a payload for this function, from the annotation of its first parameter."""
    import msgspec  # noqa: PLC0415

    first = next(iter(inspect.signature(function).parameters))
    try:
        annotation = typing.get_type_hints(function).get(first)
    except Exception:  # noqa: BLE001 # an annotation that cannot be resolved says nothing about the payload
        annotation = None
    validate = getattr(annotation, "model_validate_json", None)
    if validate is not None:
        return annotation, validate
    return None, msgspec.json.Decoder(dict[str, Any]).decode
