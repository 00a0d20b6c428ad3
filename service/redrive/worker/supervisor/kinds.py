"""The kinds that the runners have handlers for, as far as the supervisor must know
them.
"""

from collections.abc import Mapping

from redrive.handlers import matching
from redrive.rules.attempts.policy import Policy
from redrive.rules.dead_letters.heal import Heal
from redrive.worker.protocol import Kind


class KnownKinds:
    """Kinds that runners can run; empty until the first runner is ready."""

    def __init__(self) -> None:
        self._kinds: Mapping[str, Kind] = {}
        self._prefixes: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def learn(self, kinds: Mapping[str, Kind]) -> bool:
        """Take what a runner said, by name. Returns whether a worker of these is
        another one.
        """
        before = self._kinds.keys(), self.holds()
        self._kinds = kinds
        are_others = before != (kinds.keys(), self.holds())
        self._prefixes = sorted(
            (k for k in kinds if k.endswith("*")), key=len, reverse=True
        )
        return are_others

    def names(self) -> list[str]:
        """Every kind, prefixes too."""
        return list(self._kinds)

    def depends_on(self) -> dict[str, tuple[str, ...]]:
        """The breakers of the kinds that depend on any."""
        return {
            name: kind.depends_on
            for name, kind in self._kinds.items()
            if kind.depends_on
        }

    def holds(self) -> list[str]:
        """The kinds whose deaths hold their ordering key."""
        return [name for name, kind in self._kinds.items() if kind.holds_key]

    def limits(self) -> dict[str, tuple[str, ...]]:
        """The templates of the kinds that are limited."""
        return {name: kind.limits for name, kind in self._kinds.items() if kind.limits}

    def approvals(self) -> list[str]:
        """The kinds whose redrive needs two people."""
        return [name for name, kind in self._kinds.items() if kind.approval == "two"]

    def heals(self) -> dict[str, Heal]:
        """The kinds whose dead letters are tried after a deploy."""
        return {name: kind.heal for name, kind in self._kinds.items() if kind.heal}

    def find(self, name: str) -> Kind | None:
        """Return what is known of a kind; None if no runner has a handler for it."""
        return self._kinds.get(matching(name, self._kinds, self._prefixes) or "")

    def timeout(self, name: str) -> float:
        """Seconds that an attempt may take; infinite for an unknown kind."""
        known = self.find(name)
        return float("inf") if known is None else known.timeout

    def policy(self, name: str) -> Policy:
        """Return the supervisor's part of a kind's policy; the defaults for an unknown
        kind.
        """
        known = self.find(name)
        if known is None:
            return Policy()
        return Policy(max_attempts=known.max_attempts, max_losses=known.max_losses)
