"""The registry of handlers: which function runs which kind of job, with which payload type and
policy.
"""

import inspect
import typing
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec

from redrive.errors import SettingsError
from redrive.rules.limits import check_name
from redrive.rules.policy import Policy
from redrive.signals import Seconds, seconds

decode_object = msgspec.json.Decoder(dict[str, Any]).decode
encode_json = msgspec.json.Encoder().encode

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
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
    read: Callable[[str], Any] = field(repr=False)
    secret: frozenset[str] = frozenset()
    version: int = 1
    upgrade: Mapping[int, Upgrade] = field(default_factory=dict[int, Upgrade])
    on_expired: Callable[..., Any] | None = None

    def payload(self, text: str, version: int) -> Any:
        """What the function takes, from the payload's JSON; an older payload is upgraded step by
        step first.
        """
        if version < self.version:
            value = decode_object(text)
            for step in range(version, self.version):
                value = self.upgrade[step](value)
            text = encode_json(value).decode()
        return self.read(text)


@dataclass(frozen=True, slots=True)
class Breaker:
    """How a breaker is set; seconds."""

    threshold: int = 5
    window: float = 10.0
    cooldown: float = 5.0


@dataclass(frozen=True, slots=True)
class Death:
    """What `on_dead` is told. The message is the one that is stored: scrubbed and bounded."""

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
        """Make a registry. `on_dead` is told of each job that died here (Sentry, a chat): it cannot
        hurt the job.
        """
        self._by_kind: dict[str, Handler] = {}
        self._prefixes: list[str] = []
        self.on_dead = on_dead
        self.breakers: dict[str, Breaker] = {}

    def breaker(
        self, name: str, *, threshold: int = 5, window: Seconds = 10, cooldown: Seconds = 5
    ) -> None:
        """Say how the breaker of a dependency is set, where the defaults do not fit.

        Args:
            name: as in `depends_on` and `job.dependency`.
            threshold: failures within `window` that open it, when they are at least half of all
                calls.
            cooldown: how long it stays open at first; it doubles, up to 16 times, while probes
                fail.
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
    ) -> Callable[[Function], Function]:
        """Register a function `(payload)` or `(payload, job)`, `def` or `async def`, for jobs of
        `kind`.

        `payload` is a dict, or the pydantic model it is annotated with. Returns the function
        unchanged.

        Args:
            kind: what it is, `^[a-z][a-z0-9_.-]{0,62}$`.
            queue: where its jobs go when the producer does not say.
            policy: when it is tried again, and when it is given up.
            depends_on: what it cannot work without.
            secret: keys of the payload that nobody may see, besides SecretStr fields and those with
                telling names.
            version: of the payload this function takes; producers say theirs with
                enqueue(version=).
            upgrade: for each older version, a function from its payload (a dict) to the next
                version's.
            on_expired: called like the function, once, when the job's window ended before it
                succeeded.

        Raises:
            InvalidJob: the kind or the queue is no name.
            ValueError: the kind has a handler already, the function takes something else, or an
                upgrade is missing.
        """
        check_name("kind", kind)
        check_name("queue", queue)
        steps = dict(upgrade or {})
        if version < 1 or set(steps) != set(range(1, version)):
            msg = f"the handler of {kind!r} takes version {version} and must upgrade each of 1 to {version - 1}"
            raise ValueError(msg)

        for name in depends_on:
            check_name("depends_on", name)

        def register(function: Function) -> Function:
            if kind in self._by_kind:
                msg = f"kind {kind!r} has a handler already: {self._by_kind[kind].function!r}"
                raise ValueError(msg)
            takes = _positional(function)
            if takes not in (1, TAKES_JOB):
                msg = f"the handler of {kind!r} must take (payload) or (payload, job), it takes {takes} arguments"
                raise ValueError(msg)
            payload_type, read = _reader(function)
            self.add(
                Handler(
                    kind=kind,
                    function=function,
                    policy=policy or Policy(),
                    queue=queue,
                    depends_on=tuple(depends_on),
                    is_async=inspect.iscoroutinefunction(function),
                    takes_job=takes == TAKES_JOB,
                    read=read,
                    secret=frozenset(secret) | _secret_fields(payload_type),
                    version=version,
                    upgrade=steps,
                    on_expired=on_expired,
                )
            )
            return function

        return register

    def include(self, other: "Handlers") -> None:
        """Add another registry's handlers, so that an application can keep one per module."""
        # first: what is not set by then is set as by default
        self.breakers = other.breakers | self.breakers
        for handler in other:
            self.add(handler)

    def add(self, handler: Handler) -> None:
        """Add one handler as it is. Its kind may be a prefix that ends in `*`; a longer one comes
        first.
        """
        if handler.kind in self._by_kind:
            msg = f"kind {handler.kind!r} has a handler already"
            raise ValueError(msg)
        self._by_kind[handler.kind] = handler
        for name in handler.depends_on:
            self.breakers.setdefault(name, Breaker())
        prefixes = [kind for kind in self._by_kind if kind.endswith("*")]
        self._prefixes = sorted(prefixes, key=len, reverse=True)

    def get(self, kind: str) -> Handler | None:
        """The handler of a kind, or None."""
        found = self._by_kind.get(kind)
        if found is None and self._prefixes:
            found = self._by_kind.get(matching(kind, (), self._prefixes) or "")
        return found

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._by_kind.values())

    def __len__(self) -> int:
        return len(self._by_kind)


def matching(kind: str, known: Container[str], prefixes: Iterable[str]) -> str | None:
    """The name under which a kind is known: its own, or the first prefix (`mail.*`) that fits; None
    when unknown.
    """
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
    return sum(
        p.kind in kinds and (p.default is p.empty or i < TAKES_JOB)
        for i, p in enumerate(parameters)
    )


def _reader(function: Callable[..., Any]) -> tuple[type | None, Callable[[str], Any]]:
    """How to read a payload for this function, from the annotation of its first parameter."""
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
    """The names of a model's fields that pydantic writes as secret (SecretStr, SecretBytes), at any
    depth.
    """
    if payload_type is None:
        return frozenset()
    found: set[str] = set()
    model = cast("Any", payload_type)
    waiting: list[Any] = [model.model_json_schema()]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            schema = cast("dict[str, Any]", node)
            fields = cast("dict[str, Any]", schema.get("properties", {}))
            found |= {
                name
                for name, rule in fields.items()
                if '"writeOnly":true' in encode_json(rule).decode()
            }
            waiting += schema.values()
        elif isinstance(node, list):
            waiting += cast("list[Any]", node)
    return frozenset(found)
