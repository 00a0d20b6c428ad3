"""Kinds that the runners have handlers for, with all the supervisor needs."""

from collections.abc import Mapping

from redrive.handlers import matching
from redrive.rules.attempts.policy import Policy
from redrive.rules.heal import Heal
from redrive.worker.protocol import Kind
from redrive.worker.store import RedriveTerms

DEFAULT = Policy()


class KnownKinds:
    """Kinds of the runners; empty until the first one is ready."""

    def __init__(self) -> None:
        self._kinds: Mapping[str, Kind] = {}
        self._prefixes = list[str]()
        self._policies = dict[str, Policy]()

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def learn(self, kinds: Mapping[str, Kind]) -> bool:
        """Learn a runner's kinds. Returns True if the worker must register again."""
        old_kinds = self._kinds.keys()
        old_holds = self.holds()
        self._kinds = kinds
        self._policies = {name: Policy(**kind.policy) for name, kind in kinds.items()}

        # The longest prefix of a kind has precedence.
        prefixes = [name for name in kinds if name.endswith("*")]
        self._prefixes = sorted(prefixes, key=len, reverse=True)

        return kinds.keys() != old_kinds or self.holds() != old_holds

    def names(self) -> list[str]:
        """Return every kind, including prefixes."""
        return list(self._kinds)

    def depends_on(self) -> dict[str, tuple[str, ...]]:
        """Return the breakers of the kinds that depend on any."""
        return {
            name: kind.depends_on
            for name, kind in self._kinds.items()
            if kind.depends_on
        }

    def holds(self) -> list[str]:
        """Return the kinds whose dead letters hold their ordering key."""
        return [name for name, kind in self._kinds.items() if kind.holds_key]

    def limits(self) -> dict[str, tuple[str, ...]]:
        """Return the limit templates of the kinds that have any."""
        return {name: kind.limits for name, kind in self._kinds.items() if kind.limits}

    def approvals(self) -> list[str]:
        """Return the kinds whose redrive needs two people."""
        return [name for name, kind in self._kinds.items() if kind.approval == "two"]

    def heals(self) -> dict[str, Heal]:
        """Return how the dead letters of kinds are tried after a deploy."""
        return {name: kind.heal for name, kind in self._kinds.items() if kind.heal}

    def redrives(self) -> dict[str, RedriveTerms]:
        """Return what handlers say about redrives of their kinds, where they say any.

        A kind is included, too, if its prefix would speak for it otherwise.
        """
        usual = RedriveTerms()
        terms = {
            name: RedriveTerms(kind.redrive_rate, kind.repeatable)
            for name, kind in self._kinds.items()
        }
        covered = tuple(name[:-1] for name in self._prefixes if terms[name] != usual)

        return {
            name: own
            for name, own in terms.items()
            if own != usual or name.startswith(covered)
        }

    def find(self, name: str) -> Kind | None:
        """Return what is known of a kind; None if no runner has a handler for it."""
        return self._kinds.get(matching(name, self._kinds, self._prefixes) or "")

    def timeout(self, name: str) -> float:
        """Return the seconds that an attempt may take; infinite for an unknown kind."""
        known = self.find(name)
        if known is None:
            return float("inf")

        return known.timeout

    def policy(self, name: str) -> Policy:
        """Return a kind's policy without its rules, or the defaults."""
        known = self.find(name)
        if known is None:
            return DEFAULT
        return self._policies[known.kind]
