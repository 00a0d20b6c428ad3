"""The registry of handlers: which function runs which kind of job, and how."""

import importlib
import inspect
import sys
import typing
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import Parameter
from typing import Any, TypeVar, cast

import msgspec

from redrive.errors import SettingsError
from redrive.rules.limits import check_name
from redrive.rules.policy import Policy
from redrive.signals import Seconds, seconds

decode_object = msgspec.json.Decoder(dict[str, Any]).decode
encode_json = msgspec.json.Encoder().encode

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
_POSITIONAL = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Handler:
    """One registered function; `read` turns the payload's JSON into what the function takes.

    `known` are secrets of its own, as an endpoint's keys, which no text may quote.
    """

    kind: str
    function: Callable[..., Any]
    policy: Policy
    queue: str
    depends_on: tuple[str, ...]
    is_async: bool
    takes_job: bool
    read: Callable[[str], Any] = field(repr=False)
    secret: frozenset[str] = frozenset()
    version: int = 1
    upgrade: Mapping[int, Upgrade] = field(default_factory=dict[int, Upgrade])
    on_expired: Callable[..., Any] | None = None
    on_cancelled: Callable[..., Any] | None = None
    known: frozenset[str] = field(default=frozenset(), repr=False)
    sample: bool = True

    def payload(self, text: str, version: int) -> Any:
        """Return what the function takes, from JSON of this version, upgraded step by step."""
        if version < self.version:
            value = decode_object(text)
            for step in range(version, self.version):
                value = self.upgrade[step](value)
            text = encode_json(value).decode()
        return self.read(text)


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a breaker opens, and for how long; `window` and `cooldown` are in seconds."""

    threshold: int = 5
    window: float = 10.0
    cooldown: float = 5.0


@dataclass(frozen=True, slots=True)
class Death:
    """What `on_dead` is given. The message is the stored one: bounded, and without secrets."""

    id: int
    kind: str
    attempt: int
    reason: str
    category: str
    error_class: str
    message: str
    fingerprint: str


class Handlers:
    """Handlers by kind.

    jobs = Handlers()

    @jobs.handle("invoice.charge", policy=Policy(max_attempts=8, timeout=30))
    async def charge(payload: Invoice, job: Job) -> None: ...
    """

    def __init__(self, *, on_dead: Callable[[Death], Any] | None = None) -> None:
        """Make a registry.

        Args:
            on_dead: called for each job that is dead-lettered here, to tell Sentry or a chat; an
                error in it does not affect the job.
        """
        self._by_kind: dict[str, Handler] = {}
        self._prefixes: list[str] = []
        self.on_dead = on_dead
        self.breakers: dict[str, Breaker] = {}

    def breaker(
        self, name: str, *, threshold: int = 5, window: Seconds = 10, cooldown: Seconds = 5
    ) -> None:
        """Set the breaker of a dependency where the defaults do not fit.

        Args:
            name: as in `depends_on` and `job.dependency`.
            threshold: failures within `window` that open it, when they are at least half of all
                calls.
            cooldown: how long it stays open at first; it doubles, up to 16 times, while probes
                fail.

        Raises:
            InvalidJob: the name is not valid.
            ValueError: a figure is not above 0.
        """
        check_name("dependency", name)
        if threshold < 1 or seconds(window) <= 0 or seconds(cooldown) <= 0:
            msg = f"breaker({name!r}): threshold, window and cooldown must be above 0"
            raise ValueError(msg)
        self.breakers[name] = Breaker(threshold, seconds(window), seconds(cooldown))

    def handle(  # noqa: PLR0913 # what a handler can say of itself
        self,
        kind: str,
        *,
        queue: str = "default",
        policy: Policy | None = None,
        depends_on: Sequence[str] = (),
        secret: Collection[str] = (),
        version: int = 1,
        upgrade: Mapping[int, Upgrade] | None = None,
        on_expired: Callable[..., Any] | None = None,
        on_cancelled: Callable[..., Any] | None = None,
        sample: bool = True,
    ) -> Callable[[Function], Function]:
        """Register the function that runs jobs of `kind`.

        It takes `(payload)` or `(payload, job)` and is `def` or `async def`; `payload` is a dict,
        or the pydantic model it is annotated with. It is returned unchanged.

        Args:
            kind: `^[a-z][a-z0-9_.-]{0,62}$`.
            queue: where its jobs go when the producer does not say.
            policy: when it is tried again, and when it is given up.
            depends_on: the services it cannot work without.
            secret: keys of the payload that nobody may see, besides SecretStr fields and keys whose
                names sound secret.
            version: of the payload this function takes; producers give theirs to
                enqueue(version=).
            upgrade: for each older version, a function from its payload (a dict) to the next
                version's.
            on_expired: called like the function, once, when the job's window ended before it
                succeeded.
            on_cancelled: called like the function when an operator cancelled the job while a worker
                had it, and its attempt has ended for that.
            sample: whether some of its jobs that succeed are remembered, without their texts, for
                `redrive dlq explain`.

        Raises:
            InvalidJob: the kind, the queue or a dependency is not a valid name.
            ValueError: the kind has a handler already, the function takes something else, or an
                upgrade is missing.
        """
        check_name("kind", kind)
        check_name("queue", queue)
        for name in depends_on:
            check_name("depends_on", name)
        declared = partial(
            Handler,
            kind=kind,
            policy=policy or Policy(),
            queue=queue,
            depends_on=tuple(depends_on),
            version=version,
            upgrade=_every_upgrade(kind, version, upgrade or {}),
            on_expired=on_expired,
            on_cancelled=on_cancelled,
            sample=sample,
        )

        def register(function: Function) -> Function:
            takes_job = _takes_job(kind, function)
            payload_type, read = _reader(function)
            handler = declared(
                function=function,
                is_async=inspect.iscoroutinefunction(function),
                takes_job=takes_job,
                read=read,
                secret=frozenset(secret) | _secret_fields(payload_type),
            )
            self.add(handler)
            return function

        return register

    def include(self, other: "Handlers") -> None:
        """Add another registry's handlers, so that an application can keep one per module.

        Raises:
            ValueError: a kind has a handler here already.
        """
        # first: `add` gives the defaults to those that are not set
        self.breakers = other.breakers | self.breakers
        for handler in other:
            self.add(handler)

    def add(self, handler: Handler) -> None:
        """Add one handler. Its kind may be a prefix that ends in `*`; the longest that fits wins.

        Raises:
            ValueError: its kind has a handler already.
        """
        other = self._by_kind.get(handler.kind)
        if other is not None:
            msg = f"kind {handler.kind!r} has a handler already: {other.function!r}"
            raise ValueError(msg)
        self._by_kind[handler.kind] = handler
        for name in handler.depends_on:
            self.breakers.setdefault(name, Breaker())
        prefixes = [kind for kind in self._by_kind if kind.endswith("*")]
        self._prefixes = sorted(prefixes, key=len, reverse=True)

    def get(self, kind: str) -> Handler | None:
        """Return the handler of a kind, or None."""
        found = self._by_kind.get(kind)
        if found is None and self._prefixes:
            found = self._by_kind.get(matching(kind, (), self._prefixes) or "")
        return found

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._by_kind.values())

    def __len__(self) -> int:
        return len(self._by_kind)


def matching(kind: str, known: Container[str], prefixes: Iterable[str]) -> str | None:
    """Return what covers a kind: itself, the first prefix (`mail.*`) that fits, or None."""
    if kind in known:
        return kind
    return next((prefix for prefix in prefixes if kind.startswith(prefix[:-1])), None)


def load(target: str) -> Handlers:
    """Import the registry that `module:attribute` names.

    Raises:
        SettingsError: it cannot be imported, or is something else.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise _refused(target, "it must be module:attribute, e.g. app.jobs:jobs")
    _search_working_directory()
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise _refused(target, f"it cannot be imported: {error}") from error
    if not isinstance(found, Handlers):
        raise _refused(target, f"that is a {type(found).__name__}, not a Handlers registry")
    return found


def _search_working_directory() -> None:
    """Let modules be imported from where the command was typed, as `python -m` does."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _refused(target: str, why: str) -> SettingsError:
    return SettingsError(f"REDRIVE_HANDLERS is {target!r}; {why}")


def _every_upgrade(
    kind: str, version: int, upgrade: Mapping[int, Upgrade]
) -> Mapping[int, Upgrade]:
    if version < 1 or set(upgrade) != set(range(1, version)):
        msg = (
            f"the handler of {kind!r} takes version {version}"
            f" and must upgrade each of 1 to {version - 1}"
        )
        raise ValueError(msg)
    return dict(upgrade)


def _takes_job(kind: str, function: Callable[..., Any]) -> bool:
    """Whether the function takes (payload, job) and not the payload alone."""
    positional = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in _POSITIONAL
    ]
    # a third one and later ones may be there if they have a default
    taken = positional[:2] + [p for p in positional[2:] if p.default is p.empty]
    if len(taken) not in {1, 2}:
        msg = (
            f"the handler of {kind!r} must take (payload) or (payload, job),"
            f" it takes {len(taken)} arguments"
        )
        raise ValueError(msg)
    return len(taken) == 2  # noqa: PLR2004 # payload and job


def _reader(function: Callable[..., Any]) -> tuple[type | None, Callable[[str], Any]]:
    """The payload's model, if it has one, and how to read it: what the first parameter says."""
    first = next(iter(inspect.signature(function).parameters))
    try:
        annotation = typing.get_type_hints(function).get(first)
    except Exception:  # noqa: BLE001 # an annotation that cannot be resolved says nothing about the payload
        annotation = None
    validate = getattr(annotation, "model_validate_json", None)
    if validate is not None:
        return annotation, validate
    return None, decode_object


def _secret_fields(payload_type: type | None) -> frozenset[str]:
    """The names of a model's SecretStr and SecretBytes fields, at any depth."""
    if payload_type is None:
        return frozenset()
    schema = cast("Any", payload_type).model_json_schema()
    return frozenset(
        name for name, rule in _properties(schema) if b'"writeOnly":true' in encode_json(rule)
    )


def _properties(node: Any) -> Iterator[tuple[str, Any]]:
    """Every property that a JSON schema describes, at any depth, with its own schema."""
    if isinstance(node, dict):
        schema = cast("dict[str, Any]", node)
        yield from schema.get("properties", {}).items()
        children = list(schema.values())
    else:
        children = cast("list[Any]", node) if isinstance(node, list) else []
    for child in children:
        yield from _properties(child)
