"""The registry of handlers: which function runs which kind of job, and how."""

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
from typing import Any, Concatenate, TypeVar, Unpack, overload

from redrive.database.drivers import AsyncConnection, SyncConnection
from redrive.handlers.declared import declare
from redrive.handlers.function import check_runs, faults_of, place_of, without_payload
from redrive.handlers.handler import Approval, Breaker, Death, Handler, Upgrade
from redrive.handlers.job_function import (
    JobFunction,
    Others,
    PayloadT,
    Returned,
    enqueue_for,
    enqueue_many_for,
    plain,
)
from redrive.rules.attempts.policy import OnDeath, Policy, is_whole
from redrive.rules.heal import Heal
from redrive.rules.nearest import nearest
from redrive.rules.payloads.job_fields import JobFields, JobOptions, Payload
from redrive.rules.payloads.limits import check_name
from redrive.rules.slots import CatchUp, Declaration, Schedule, declaration
from redrive.signals import Seconds, is_duration, seconds

Function = TypeVar("Function", bound=Callable[..., Any])


class Handlers:
    """Handlers by kind.

    jobs = Handlers()

    @jobs.handle("invoice.charge", policy=Policy(max_attempts=8, timeout=30))
    async def charge(payload: Invoice, job: Job) -> None: ...
    """

    def __init__(self, *, on_dead: Callable[[Death], Any] | None = None) -> None:
        """Create an empty registry.

        Args:
            on_dead: a function called for each job that is dead-lettered here, for
                example to notify Sentry or a chat. An error in it does not affect the
                job.

        Raises:
            ValueError: a call of the function would run nothing of it.
        """
        check_runs("on_dead", on_dead)
        self._by_kind: dict[str, Handler] = {}
        self._prefixes: list[str] = []
        self.on_dead = on_dead
        self.breakers: dict[str, Breaker] = {}
        self.module = ""
        self.schedules: dict[str, Declaration] = {}

    def breaker(
        self,
        name: str,
        *,
        threshold: int = 5,
        window: Seconds = 10,
        cooldown: Seconds = 5,
    ) -> None:
        """Configure the breaker of a dependency if the defaults do not fit.

        Args:
            name: the name as in `depends_on` and `job.dependency`.
            threshold: number of failures within `window` that open the breaker, if they
                are at least half of all calls.
            window: the period in which failures are counted.
            cooldown: how long the breaker stays open at first. It doubles while probes
                fail, up to 16 times the first value.

        Raises:
            InvalidJob: the name is not valid.
            ValueError: threshold, window or cooldown is not a number above 0.
        """
        check_name("dependency", name)
        # `seconds` takes numbers only, so check the types before the values.
        are_numbers = (
            is_whole(threshold) and is_duration(window) and is_duration(cooldown)
        )
        if not are_numbers or min(threshold, seconds(window), seconds(cooldown)) <= 0:
            rule = "threshold, window and cooldown must be numbers above 0"
            msg = f"breaker({name!r}): {rule}"
            raise ValueError(msg)

        self.breakers[name] = Breaker(
            threshold=threshold, window=seconds(window), cooldown=seconds(cooldown)
        )

    def handle(  # noqa: PLR0913 # the options of a handler
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
        redrive_rate: float | None = None,
        repeatable: bool = True,
    ) -> Callable[
        [Callable[Concatenate[PayloadT, Others], Returned]],
        JobFunction[PayloadT, Others, Returned],
    ]:
        """Register the function that runs jobs of `kind`.

        The function takes `(payload)` or `(payload, job)` and is `def` or `async def`.
        `payload` is a dict, or the pydantic model in its annotation. The function can
        still be called directly. It also gets `enqueue` and `enqueue_many` for its
        jobs.

        Args:
            kind: `^[A-Za-z][A-Za-z0-9_.-]{0,62}$`.
            queue: the queue of jobs that are enqueued through the function or this
                registry. The producer can override it.
            policy: when a failed job is retried, and when it is dead-lettered.
            depends_on: the services that the function cannot work without.
            secret: payload keys whose values are hidden everywhere. SecretStr fields
                and keys whose names sound secret are always hidden.
            version: the payload version that this function takes. Producers that cannot
                import the function pass the version to enqueue(version=).
            upgrade: for each older version, a function that converts its payload (a
                dict) to the next version.
            on_expired: called once, with the same arguments, if the job's window ends
                before it succeeds.
            on_cancelled: called with the same arguments after an operator cancelled the
                job during an attempt and the attempt has ended.
            on_death: what happens to later jobs of an ordering key when a job dies.
                "continue": they run. "hold": they wait until the dead letter is
                dismissed, or redriven with success.
            schedule: when jobs of this kind are enqueued automatically. Several
                schedules need names.
            limits: names for `redrive limit set`: `emails`, or `customer:{customer_id}`
                with a payload field, {tenant}, {queue} or {kind}.
            keep_result: how long the returned value is kept for callers of `wait`,
                unless it is None; 0 = not kept.
            approval: "two": one person plans a redrive of its dead letters and another
                person starts it. Database logins identify them.
            sample: True: keep the facts of some succeeded jobs, without their texts,
                for `redrive dlq explain`.
            heal: redrive dead letters that died of a bug or an invalid payload once all
                workers of the kind run a new version. A few of each group go first.
                None = never.
            validate: called with the payload of each dead letter when a redrive is
                planned. A dead letter for which it raises is left out. It is not called
                when a job runs.
            redrive_rate: how many of its redriven jobs may begin per second, over all
                campaigns and workers; None = no limit.
            repeatable: False: its jobs must not run twice. Its dead letters are
                redriven only by id and with `--repeat`, unless it is on record that the
                function never began.

        Raises:
            InvalidJob: the kind, the queue, a dependency or a limit is not a valid
                name.
            ValueError: the kind already has a handler, or the function takes other
                arguments. An upgrade is missing, or an argument has a wrong type or
                value. `heal` is combined with `approval` or `repeatable=False`, or `validate` is async. A
                schedule's name is taken, or the function rejects its payload.
        """
        declared = declare(
            kind=kind,
            queue=queue,
            policy=policy,
            depends_on=depends_on,
            secret=secret,
            version=version,
            upgrade=upgrade,
            on_expired=on_expired,
            on_cancelled=on_cancelled,
            on_death=on_death,
            schedule=schedule,
            limits=limits,
            keep_result=keep_result,
            approval=approval,
            sample=sample,
            heal=heal,
            validate=validate,
            redrive_rate=redrive_rate,
            repeatable=repeatable,
        )

        def register(
            decorated: Callable[Concatenate[PayloadT, Others], Returned],
        ) -> JobFunction[PayloadT, Others, Returned]:
            function = plain(decorated)
            handler = declared.handler(function)
            self.add(handler)

            for one in declared.schedules:
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
        self,
        conn: Any,
        kind: str,
        payload: Payload = None,
        **options: Unpack[JobOptions],
    ) -> int | Awaitable[int]:
        """Add one job with the options of its handler; see `JobFunction.enqueue`.

        Raises:
            LookupError: no handler is registered for the kind.
        """
        return enqueue_for(self.known(kind), conn, kind, payload, options)

    @overload
    def enqueue_many(self, conn: SyncConnection, jobs: Iterable[JobFields]) -> int: ...
    @overload
    def enqueue_many(
        self, conn: AsyncConnection, jobs: Iterable[JobFields]
    ) -> Awaitable[int]: ...
    def enqueue_many(
        self, conn: Any, jobs: Iterable[JobFields]
    ) -> int | Awaitable[int]:
        """Add many jobs with the options of their handlers; see `redrive.enqueue_many`.

        Raises:
            LookupError: no handler is registered for a kind.
        """
        return enqueue_many_for(self.known, conn, jobs)

    def every(  # a schedule and its handler
        self,
        cron: str,
        *,
        tz: str = "UTC",
        catch_up: CatchUp = "one",
        kind: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Callable[[Function], Function]:
        """Register a function together with its schedule.

            @jobs.every("0 7 * * 1-5", tz="Europe/Berlin")
            def morning_report() -> None: ...

        The function takes no arguments, `(job)`, or the arguments of a handler.
        Parameters with defaults keep their defaults.

        Args:
            cron: as for `Schedule`; so are `tz`, `catch_up` and `name`.
            kind: the kind of its jobs; by default the function's name.
            options: as for `handle`.

        Raises:
            InvalidJob, ValueError: as for `handle`.
        """
        schedule = Schedule(cron, tz, catch_up, name=name)

        def register(function: Function) -> Function:
            name = kind or function.__name__
            decorate = self.handle(name, schedule=schedule, **options)
            check_runs(f"the handler of {name!r}", function)
            decorate(without_payload(function))

            return function

        return register

    def schedule(
        self, kind: str, schedule: Schedule, *, queue: str | None = None
    ) -> None:
        """Enqueue jobs of a kind by a schedule; register the handler first.

        Args:
            kind: the kind of the jobs.
            schedule: when to enqueue them.
            queue: the queue of the jobs; by default the handler's.

        Raises:
            InvalidJob: a name or the payload is not valid.
            ValueError: the kind has no handler, its handler rejects the payload, or the
                name is taken.
        """
        handler = self.get(kind)
        if handler is None:
            msg = f"the schedule of {kind!r} needs a handler of that kind"
            raise ValueError(msg)

        declared = declaration(kind, queue or handler.queue, schedule)
        _check_free(declared.name, self.schedules)

        # Otherwise, each job of the schedule would die of its payload.
        try:
            handler.read(declared.payload)
        except ValueError as error:
            rejected = f"the handler of {kind!r} rejects the payload"
            msg = f"{rejected} of schedule {declared.name!r}: {faults_of(error)}"
            raise ValueError(msg) from None

        self.schedules[declared.name] = declared

    def include(self, other: "Handlers") -> None:
        """Add all handlers of another registry, such as one per module.

        Raises:
            ValueError: a kind already has a handler here, or a schedule's name is
                taken.
        """
        # Merge breakers before `add`, which sets defaults for missing ones.
        self.breakers = other.breakers | self.breakers
        for handler in other:
            self.add(handler)

        for name in sorted(other.schedules):
            _check_free(name, self.schedules)

        self.schedules |= other.schedules

    def add(self, handler: Handler) -> None:
        """Add one handler. Its kind may be a prefix that ends in `*`.

        If several prefixes match a kind, the longest one is used.

        Raises:
            ValueError: its kind already has a handler.
        """
        self._check_kind(handler)
        self._by_kind[handler.kind] = handler

        for name in handler.depends_on:
            self.breakers.setdefault(name, Breaker())

        # The first prefix that matches counts, so the longest comes first.
        prefixes = [kind for kind in self._by_kind if kind.endswith("*")]
        self._prefixes = sorted(prefixes, key=len, reverse=True)

    def _check_kind(self, handler: Handler) -> None:
        """Raise ValueError if the kind has a handler already."""
        other = self._by_kind.get(handler.kind)
        if other is not None:
            first = place_of(other.function)
            second = place_of(handler.function)
            msg = f"kind {handler.kind!r} has two handlers: {first}, and {second}"
            raise ValueError(msg)

    def get(self, kind: str) -> Handler | None:
        """Return the handler of a kind, or None."""
        found = self._by_kind.get(kind)
        if found is None and self._prefixes:
            found = self._by_kind.get(matching(kind, (), self._prefixes) or "")
        return found

    def known(self, kind: str) -> Handler:
        """Return the handler of a kind.

        Raises:
            LookupError: the kind has no handler; the message suggests a similar kind.
        """
        found = self.get(kind)
        if found is None:
            similar = nearest(kind, self._by_kind)
            hint = "" if similar is None else f"; did you mean {similar!r}?"
            msg = f"no handler is registered for {kind!r}{hint}"
            raise LookupError(msg)

        return found

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._by_kind.values())

    def __len__(self) -> int:
        return len(self._by_kind)


def _check_free(name: str, schedules: Container[str]) -> None:
    """Raise ValueError if a schedule has this name already."""
    if name in schedules:
        msg = f"there are two schedules {name!r}; give each a name of its own"
        raise ValueError(msg)


def matching(kind: str, known: Container[str], prefixes: Iterable[str]) -> str | None:
    """Return the kind itself or the first prefix (`mail.*`) that covers it, or None.

    Args:
        known: the kinds that need no prefix.
        prefixes: the longest ones first.
    """
    if kind in known:
        return kind
    return next((prefix for prefix in prefixes if kind.startswith(prefix[:-1])), None)
