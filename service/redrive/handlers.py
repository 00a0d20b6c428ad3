"""The registry of handlers: which function runs which kind of job, and how."""

import importlib
import inspect
import os
import sys
import typing
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial, update_wrapper
from inspect import Parameter
from typing import Any, Concatenate, TypeVar, Unpack, cast, get_args, overload

import msgspec

from redrive.database.drivers import AsyncConnection, SyncConnection
from redrive.errors import CannotImport, SettingsError
from redrive.job_function import (
    JobFunction,
    Others,
    PayloadT,
    Returned,
    enqueue_for,
    enqueue_many_for,
    plain,
)
from redrive.rules.concurrency import check_templates
from redrive.rules.heal import Heal
from redrive.rules.job_fields import JobFields, JobOptions, Payload
from redrive.rules.limits import check_name
from redrive.rules.nearest import nearest
from redrive.rules.policy import OnDeath, Policy, is_whole
from redrive.rules.slots import CatchUp, Declaration, Schedule, declaration
from redrive.signals import Seconds, is_duration, seconds

decode_object = msgspec.json.Decoder(dict[str, Any]).decode
encode_json = msgspec.json.Encoder().encode

Approval = typing.Literal["two"]
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
_POSITIONAL = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}


Function = TypeVar("Function", bound=Callable[..., Any])
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Handler:
    """One registered function; `read` turns the payload's JSON into what the function takes.

    `known` are secrets of its own, as an endpoint's keys, which no text may quote; `keep_result` is
    in seconds.
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
    on_death: OnDeath = "continue"
    known: frozenset[str] = field(default=frozenset(), repr=False)
    limits: tuple[str, ...] = ()
    keep_result: float = 0.0
    approval: Approval | None = None
    sample: bool = True
    heal: Heal | None = None
    validate: Callable[[Any], object] | None = None

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
        self.module = ""
        self.schedules: dict[str, Declaration] = {}

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
            ValueError: a figure is no number above 0.
        """
        check_name("dependency", name)
        are_numbers = is_whole(threshold) and is_duration(window) and is_duration(cooldown)
        if not are_numbers or threshold < 1 or seconds(window) <= 0 or seconds(cooldown) <= 0:
            msg = f"breaker({name!r}): threshold, window and cooldown must be numbers above 0"
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
        on_death: OnDeath = "continue",
        schedule: Schedule | Sequence[Schedule] = (),
        limits: Sequence[str] = (),
        keep_result: Seconds = timedelta(days=1),
        approval: Approval | None = None,
        sample: bool = True,
        heal: Heal | None = None,
        validate: Callable[[Any], object] | None = None,
    ) -> Callable[
        [Callable[Concatenate[PayloadT, Others], Returned]],
        JobFunction[PayloadT, Others, Returned],
    ]:
        """Register the function that runs jobs of `kind`.

        It takes `(payload)` or `(payload, job)` and is `def` or `async def`; `payload` is a dict,
        or the pydantic model it is annotated with. It can be called as before, and has `enqueue`
        and `enqueue_many` for its jobs.

        Args:
            kind: `^[a-z][a-z0-9_.-]{0,62}$`.
            queue: where its jobs go when they are enqueued through it or through this registry,
                and the producer does not say.
            policy: when it is tried again, and when it is given up.
            depends_on: the services it cannot work without.
            secret: keys of the payload that nobody may see, besides SecretStr fields and keys whose
                names sound secret.
            version: of the payload this function takes; producers that do not have the function
                give theirs to enqueue(version=).
            upgrade: for each older version, a function from its payload (a dict) to the next
                version's.
            on_expired: called like the function, once, when the job's window ended before it
                succeeded.
            on_cancelled: called like the function when an operator cancelled the job while a worker
                had it, and its attempt has ended for that.
            on_death: when a job with an ordering key dies, its next ones go on; with "hold" they
                wait until the dead letter has been redriven and succeeded, or was dismissed.
            schedule: when its jobs come by themselves; several have names.
            limits: the names under which its jobs count, for `redrive limit set`: `emails`, or
                `customer:{customer_id}` by a field of the payload, {tenant}, {queue} or {kind}.
            approval: "two": of its dead letters one person plans a redrive and another starts it,
                by their database logins.
            keep_result: how long what the function returns is kept, if it is not None, for whoever
                waits for the job; 0 = not at all.
            sample: whether some of its jobs that succeed are remembered, without their texts, for
                `redrive dlq explain`.
            heal: once all workers of the kind run a new version, try what is dead of a bug or an
                invalid payload, a few of each group first; by default nobody does.
            validate: called with the payload, as the function takes it, of each dead letter that a
                redrive is planned of; one for which it raises is left out. Never called for a job.

        Raises:
            InvalidJob: the kind, the queue, a dependency or a limit is not a valid name.
            ValueError: the kind has a handler already, the function takes something else, an
                upgrade is missing, an argument is of a wrong type or none of its choices, heal
                comes with approval, `validate` is async, or a schedule has the name of another or a
                payload that the function does not take.
        """
        its = partial(_of_type, kind)
        hidden = frozenset(its("secret", secret))
        slots = its("schedule", schedule)
        schedules = [slots] if isinstance(slots, Schedule) else slots
        declared = partial(
            Handler,
            kind=kind,
            policy=its("policy", policy) or Policy(),
            queue=queue,
            depends_on=tuple(its("depends_on", depends_on)),
            version=its("version", version),
            upgrade=_every_upgrade(kind, version, its("upgrade", upgrade) or {}),
            on_expired=plain(its("on_expired", on_expired)),
            on_cancelled=plain(its("on_cancelled", on_cancelled)),
            on_death=on_death,
            limits=check_templates(limits),
            keep_result=seconds(its("keep_result", keep_result)),
            approval=approval,
            sample=its("sample", sample),
            heal=its("heal", heal),
            validate=its("validate", validate),
        )
        _check_declared(declared.keywords)

        def register(
            decorated: Callable[Concatenate[PayloadT, Others], Returned],
        ) -> JobFunction[PayloadT, Others, Returned]:
            function = plain(decorated)
            takes_job = _takes_job(kind, function)
            payload_type, read = _reader(function)
            handler = declared(
                function=function,
                is_async=inspect.iscoroutinefunction(function),
                takes_job=takes_job,
                read=read,
                secret=hidden | _secret_fields(payload_type),
            )
            self.add(handler)
            for one in schedules:
                self.schedule(kind, one)
            return JobFunction(function, handler)

        return register

    @overload
    def enqueue(
        self,
        conn: SyncConnection,
        kind: str,
        payload: Payload = None,
        **options: Unpack[JobOptions],
    ) -> int: ...
    @overload
    def enqueue(
        self,
        conn: AsyncConnection,
        kind: str,
        payload: Payload = None,
        **options: Unpack[JobOptions],
    ) -> Awaitable[int]: ...
    def enqueue(
        self, conn: Any, kind: str, payload: Payload = None, **options: Unpack[JobOptions]
    ) -> int | Awaitable[int]:
        """Add one job as its handler here says: see `JobFunction.enqueue`.

        Raises:
            LookupError: no handler is registered for the kind.
        """
        return enqueue_for(self.known(kind), conn, kind, payload, options)

    @overload
    def enqueue_many(self, conn: SyncConnection, jobs: Iterable[JobFields]) -> int: ...
    @overload
    def enqueue_many(self, conn: AsyncConnection, jobs: Iterable[JobFields]) -> Awaitable[int]: ...
    def enqueue_many(self, conn: Any, jobs: Iterable[JobFields]) -> int | Awaitable[int]:
        """Add many jobs, each as its handler here says: see `redrive.enqueue_many`.

        Raises:
            LookupError: no handler is registered for a kind.
        """
        return enqueue_many_for(self.known, conn, jobs)

    def every(  # a schedule, and who runs it
        self,
        cron: str,
        *,
        tz: str = "UTC",
        catch_up: CatchUp = "one",
        kind: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Callable[[Function], Function]:
        """Register a function that is to run by the clock: a handler and its schedule in one.

        @jobs.every("0 7 * * 1-5", tz="Europe/Berlin")
        def morning_report() -> None: ...

        It takes nothing, `(job)`, or what a handler takes; parameters with defaults keep them.

        Args:
            cron: as of a Schedule; so are `tz`, `catch_up` and `name`.
            kind: of its jobs; by default the function's name.
            options: as for `handle`.

        Raises:
            InvalidJob, ValueError: as for `handle`.
        """
        schedule = Schedule(cron, tz, catch_up, name=name)

        def register(function: Function) -> Function:
            self.handle(kind or function.__name__, schedule=schedule, **options)(
                _without_payload(function)
            )
            return function

        return register

    def schedule(self, kind: str, schedule: Schedule, *, queue: str | None = None) -> None:
        """Let jobs of a kind come by themselves; its handler must be there already.

        Args:
            kind: of the jobs.
            schedule: when they come.
            queue: where to; by default the handler's.

        Raises:
            InvalidJob: a name is not valid, or the payload is none.
            ValueError: the kind has no handler, which may also refuse the payload, or the name is
                another schedule's.
        """
        handler = self.get(kind)
        if handler is None:
            msg = f"the schedule of {kind!r} needs a handler of that kind"
            raise ValueError(msg)
        declared = declaration(kind, queue or handler.queue, schedule)
        if declared.name in self.schedules:
            msg = f"there are two schedules {declared.name!r}; give each a name of its own"
            raise ValueError(msg)
        try:
            handler.read(declared.payload)
        except ValueError as error:
            msg = (
                f"the payload of schedule {declared.name!r} is not one that the handler of"
                f" {kind!r} takes: {_faults_of(error)}"
            )
            raise ValueError(msg) from None
        self.schedules[declared.name] = declared

    def include(self, other: "Handlers") -> None:
        """Add another registry's handlers, so that an application can keep one per module.

        Raises:
            ValueError: a kind has a handler here already, or a schedule's name is taken.
        """
        # first: `add` gives the defaults to those that are not set
        self.breakers = other.breakers | self.breakers
        for handler in other:
            self.add(handler)
        if twice := self.schedules.keys() & other.schedules.keys():
            msg = f"there are two schedules {min(twice)!r}; give each a name of its own"
            raise ValueError(msg)
        self.schedules |= other.schedules

    def add(self, handler: Handler) -> None:
        """Add one handler. Its kind may be a prefix that ends in `*`; the longest that fits wins.

        Raises:
            ValueError: its kind has a handler already.
        """
        other = self._by_kind.get(handler.kind)
        if other is not None:
            both = f"{_place_of(other.function)}; now comes {_place_of(handler.function)}"
            msg = f"kind {handler.kind!r} has a handler already: {both}"
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

    def known(self, kind: str) -> Handler:
        """Return the handler of a kind.

        Raises:
            LookupError: there is none; the text names what was probably meant.
        """
        found = self.get(kind)
        if found is None:
            meant = nearest(kind, self._by_kind)
            hint = "" if meant is None else f"; did you mean {meant!r}?"
            msg = f"no handler is registered for {kind!r}{hint}"
            raise LookupError(msg)
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
        CannotImport: importing it fails, whatever the application's modules raise.
        SettingsError: it is something else.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise _refused(target, "it must be module:attribute, e.g. app.jobs:jobs")
    if module_name.endswith(".py"):
        meant = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise _refused(target, f"it must name a module, not a file: {meant}:{attribute}")
    search_working_directory()
    try:
        module = importlib.import_module(module_name)
        found = getattr(module, attribute, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 # modules of the application, SystemExit too
        raise _cannot_import(target, error) from None
    if not isinstance(found, Handlers):
        is_what = f"that is a {type(found).__name__}, not a Handlers registry"
        what = f"{module_name} has no {attribute}" if found is None else is_what
        there = sorted(name for name, one in vars(module).items() if isinstance(one, Handlers))
        raise _refused(target, what + (f"; it has {', '.join(there)}" if there else ""))
    found.module = module_name
    return found


def search_working_directory() -> None:
    """Let modules be imported from where the command was typed, as `python -m` does."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _cannot_import(target: str, error: BaseException) -> CannotImport:
    """What failed, and the frames of the application on the way there."""
    from redrive.observability.tracebacks import traceback_lines  # noqa: PLC0415 # only here
    from redrive.rules.failure import describe  # noqa: PLC0415 # as above
    from redrive.rules.redact import secrets_of_environment  # noqa: PLC0415 # as above

    failure = describe(error, target, secrets=secrets_of_environment(os.environ)).record()
    stack = failure["detail"].get("stack", ())
    frames = [frame for frame in stack if not _leads_there(frame)]
    if isinstance(error, SyntaxError) and error.filename is not None:
        at = {"file": error.filename, "line": error.lineno, "function": "<module>", "own": True}
        frames.append(at)
    failure["detail"] = {"stack": frames}
    *lines, raised = traceback_lines(failure)
    module, _, _ = target.partition(":")
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        raised += "; go to where it is, or set PYTHONPATH"
    refused = _refused(target, f"it cannot be imported: {raised}")
    return CannotImport("\n".join((str(refused), *lines)))


def _leads_there(frame: Mapping[str, Any]) -> bool:
    """Whether a frame is of the import itself."""
    return frame["module"].startswith(("redrive.", "importlib")) or frame["file"].startswith("<")


def _refused(target: str, why: str) -> SettingsError:
    return SettingsError(f"REDRIVE_HANDLERS is {target!r}; {why}")


def _place_of(function: Callable[..., Any]) -> str:
    """A function by its module and line: of those of one name only this tells which is meant."""
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    named = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__name__)}"
    return named if code is None else f"{named} (line {code.co_firstlineno})"


def _are_names(value: Any) -> bool:
    """Whether these are several texts: one alone would be read by its letters."""
    is_one = isinstance(value, (str, bytes)) or not isinstance(value, Collection)
    return not is_one and all(isinstance(name, str) for name in cast("Collection[object]", value))


def _are_schedules(value: Any) -> bool:
    if not isinstance(value, (list, tuple)):
        return isinstance(value, Schedule)
    return all(isinstance(one, Schedule) for one in cast("Sequence[object]", value))


def _is_callable(value: Any) -> bool:
    return value is None or callable(value)


_TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "policy": (lambda value: value is None or isinstance(value, Policy), "a Policy"),
    "depends_on": (_are_names, "a list of names"),
    "secret": (_are_names, "a list of names"),
    "version": (is_whole, "a whole number"),
    "upgrade": (lambda value: value is None or isinstance(value, Mapping), "functions by version"),
    "on_expired": (_is_callable, "a function"),
    "on_cancelled": (_is_callable, "a function"),
    "schedule": (_are_schedules, "a Schedule, or a list of them"),
    "keep_result": (is_duration, "a timedelta or a number of seconds"),
    "sample": (lambda value: isinstance(value, bool), "True or False"),
    "heal": (lambda value: value is None or isinstance(value, Heal), "a Heal"),
    "validate": (_is_callable, "a function"),
}


def _of_type(kind: str, name: str, value: Value) -> Value:
    """Return an argument, but refuse one that would be taken for another, or fail far from here."""
    is_one, rule = _TYPES[name]
    if not is_one(value):
        msg = f"{kind}: {name} must be {rule}, not {value!r}"
        raise ValueError(msg)
    return value


def _check_declared(said: Mapping[str, Any]) -> None:
    """Refuse what no handler can be declared with."""
    kind, heal, approval = said["kind"], said["heal"], said["approval"]
    check_name("kind", kind)
    check_name("queue", said["queue"])
    for name in said["depends_on"]:
        check_name("depends_on", name)
    fault = None
    if said["on_death"] not in get_args(OnDeath):
        choices = " or ".join(get_args(OnDeath))
        fault = f"on_death: must be {choices}, not {said['on_death']!r}"
    elif approval not in {None, "two"}:
        fault = f'{kind}: approval must be "two" or absent, not {approval!r}'
    elif approval and heal:
        fault = f'{kind}: heal puts back by itself what approval="two" leaves to two people'
    elif inspect.iscoroutinefunction(said["validate"]):
        fault = f"{kind}: validate must be a plain function, not async"
    if fault is not None:
        raise ValueError(fault)


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


def _without_payload(function: Callable[..., Any]) -> Callable[..., Any]:
    """A handler from a function that may need no payload: it takes nothing, or the job alone."""
    needed = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in _POSITIONAL and parameter.default is parameter.empty
    ]
    if needed not in ([], ["job"]):
        return function
    is_async = inspect.iscoroutinefunction(function)

    def run(_payload: dict[str, Any], job: object) -> Any:
        return function(*([job] if needed else []))

    async def run_async(_payload: dict[str, Any], job: object) -> Any:
        return await run(_payload, job)

    made = run_async if is_async else run
    taken = inspect.signature(made)
    update_wrapper(made, function)  # it is known by the function's own name and place
    made.__signature__ = taken
    return made


def _faults_of(error: ValueError) -> str:
    """What is wrong with a payload, by field where it has a model; never its values."""
    errors: Any = getattr(error, "errors", None)
    if errors is None:
        return type(error).__name__
    faults = errors(include_input=False, include_url=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, f['loc'])) or 'payload'}: {f['type']}" for f in faults)


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
