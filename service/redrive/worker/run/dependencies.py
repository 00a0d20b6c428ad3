"""State of dependencies in a runner: the open breakers, and the probes it may send."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from redrive.handlers.job import Watch
from redrive.rules.attempts.categories import category_of, evidence_of
from redrive.rules.attempts.releases import put_off
from redrive.rules.attempts.settlement import Release
from redrive.rules.model import Category
from redrive.signals import DependencyOpen
from redrive.worker.protocol import Observed, OpenBreakers
from redrive.worker.run.own import clock, random


class Dependencies(Watch):
    """Releases jobs behind an open breaker, and watches uses of `job.dependency`.

    Handlers call it from threads too, so `send` must allow that. `open` maps the name
    of each open breaker to the monotonic instant until which it is open, and its
    cooldown in seconds.
    """

    def __init__(self, send: Callable[[Observed], None]) -> None:
        self._send = send
        self.open: dict[str, tuple[float, float]] = {}
        # Jobs given back since each breaker opened.
        self._ahead: Counter[str] = Counter()

        # The leases of probes: not used yet, and the last one used.
        self._probes: dict[str, float] = {}
        self._probed: dict[str, float] = {}

    def learn(self, news: OpenBreakers) -> None:
        """Learn the open breakers and probes. A used probe is not used again."""
        self.open = news.names
        self._ahead = Counter()
        self._probes = {
            name: lease
            for name, lease in news.probes.items()
            if self._probed.get(name) != lease
        }

    def put_off(self, names: Iterable[str]) -> Release | None:
        """Return the release of a job behind an open breaker; None if it may run."""
        for name in names:
            # read it once: the loop may replace it while a thread asks
            breaker = self.open.get(name)
            if breaker is not None:
                lease = self._probes.pop(name, None)
                if lease is None:
                    self._ahead[name] += 1
                    open_until, cooldown = breaker

                    return put_off(
                        name,
                        open_for=open_until - clock.monotonic(),
                        cooldown=cooldown,
                        ahead=self._ahead[name],
                        jitter=random.random(),
                    )

                self._probed[name] = lease

        return None

    def enter(self, name: str) -> None:
        """Let a handler use a dependency, or raise DependencyOpen."""
        release = self.put_off((name,))
        if release is not None:
            raise DependencyOpen(name, release.delay)

    def leave(self, name: str, error: Exception | None) -> None:
        """Report a use. Errors that are no fault of the dependency are successes."""
        blamed = error is not None and category_of(evidence_of(error, "")) in {
            Category.TRANSIENT,
            Category.THROTTLED,
        }
        self._send(Observed(name, succeeded=not blamed))


class Admitted(Watch):
    """Watch of an attempt that has passed the breakers its handler depends on.

    The attempt may be the only probe of such a breaker, so it is not stopped again.
    """

    def __init__(self, dependencies: Dependencies, names: Collection[str]) -> None:
        self._dependencies = dependencies
        self._names = names

    def enter(self, name: str) -> None:
        """Let the handler use a dependency, or raise DependencyOpen."""
        if name not in self._names:
            self._dependencies.enter(name)

    def leave(self, name: str, error: Exception | None) -> None:
        """Report a use."""
        self._dependencies.leave(name, error)
