"""State of dependencies in a runner: the open breakers, and the probes it may send."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable

from redrive.handlers.job import Watch
from redrive.rules.attempts.categories import category_of, evidence_of
from redrive.rules.attempts.policy import put_off
from redrive.rules.attempts.settlement import Release
from redrive.rules.model import Category
from redrive.signals import DependencyOpen
from redrive.worker.protocol import Observed, OpenBreakers


class Dependencies(Watch):
    """Releases jobs behind an open breaker, and watches what handlers do with
    `job.dependency`.

    Handlers in threads call it too: `send` must bear that. `open` has, for each open
        breaker, the
    monotonic instant until which it is, and its cooldown in seconds.
    """

    def __init__(self, send: Callable[[Observed], None]) -> None:
        self._send = send
        self.open: dict[str, tuple[float, float]] = {}
        self._ahead: Counter[str] = Counter()  # jobs put off since its breaker opened
        self._probes: dict[str, float] = {}  # leases of which none is used
        self._probed: dict[str, float] = {}  # the last one that was

    def learn(self, told: OpenBreakers) -> None:
        """Take over what the supervisor says: a probe that was sent is not sent
        again.
        """
        self.open, self._ahead = told.names, Counter()
        self._probes = {
            name: lease
            for name, lease in told.probes.items()
            if self._probed.get(name) != lease
        }

    def put_off(self, names: Iterable[str]) -> Release | None:
        """The release of a job behind an open breaker; None: it may run, if need be as
        a probe.
        """
        for name in names:
            # once: a handler in a thread asks while the loop may be told anew
            breaker = self.open.get(name)
            if breaker is not None:
                lease = self._probes.pop(name, None)
                if lease is None:
                    self._ahead[name] += 1
                    open_until, cooldown = breaker
                    open_for = open_until - time.monotonic()
                    return put_off(
                        name, open_for, cooldown, self._ahead[name], random.random()
                    )
                self._probed[name] = lease
        return None

    def enter(self, name: str) -> None:
        """Let a handler use a dependency, or raise DependencyOpen."""
        release = self.put_off((name,))
        if release is not None:
            raise DependencyOpen(name, release.delay)

    def leave(self, name: str, error: Exception | None) -> None:
        """Report how it went; what is no fault of the dependency's speaks for it."""
        blamed = error is not None and category_of(evidence_of(error, "")) in {
            Category.TRANSIENT,
            Category.THROTTLED,
        }
        self._send(Observed(name, succeeded=not blamed))
