"""The registry of handlers: which function runs which kind of job, and how."""

import inspect
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
from datetime import timedelta
from functools import partial
from typing import Any, Concatenate, TypeVar, Unpack, overload

from redrive.database.drivers import AsyncConnection, SyncConnection
from redrive.handlers.arguments import check_declared, every_upgrade, of_type
from redrive.handlers.function import (
    faults_of,
    place_of,
    reader,
    secret_fields,
    takes_job,
    without_payload,
)
from redrive.handlers.handler import Approval, Breaker, Death, Handler, Upgrade
from redrive.job_function import (
    JobFunction,
    Others,
    PayloadT,
    Returned,
    enqueue_for,
    enqueue_many_for,
    plain,
)
from redrive.rules.attempts.policy import OnDeath, Policy, is_whole
from redrive.rules.dead_letters.heal import Heal
from redrive.rules.nearest import nearest
from redrive.rules.payloads.job_fields import JobFields, JobOptions, Payload
from redrive.rules.payloads.limits import check_name
from redrive.rules.scheduling.concurrency import check_templates
from redrive.rules.scheduling.slots import CatchUp, Declaration, Schedule, declaration
from redrive.signals import Seconds, is_duration, seconds

Function = TypeVar("Function", bound=Callable[..., Any])


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
        its = partial(of_type, kind)
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
            upgrade=every_upgrade(kind, version, its("upgrade", upgrade) or {}),
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
        check_declared(declared.keywords)

        def register(
            decorated: Callable[Concatenate[PayloadT, Others], Returned],
        ) -> JobFunction[PayloadT, Others, Returned]:
            function = plain(decorated)
            with_job = takes_job(kind, function)
            payload_type, read = reader(function)
            handler = declared(
                function=function,
                is_async=inspect.iscoroutinefunction(function),
                takes_job=with_job,
                read=read,
                secret=hidden | secret_fields(payload_type),
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
                without_payload(function)
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
                f" {kind!r} takes: {faults_of(error)}"
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
            both = f"{place_of(other.function)}; now comes {place_of(handler.function)}"
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
