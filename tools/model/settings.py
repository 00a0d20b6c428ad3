"""The configurations of docs/model/System.tla: how many jobs, and what may go wrong.

Each is about some of the promises, so that each is small enough to be checked as a whole.
"""

from dataclasses import dataclass, replace

PROMISES = (
    "Promise1",
    "Promise3",
    "Promise4",
    "Promise6",
    "Promise8",
    "Promise9",
    "Watched",
    "InOrder",
    "Kept",
    "Origin",
)
STEPS = ("Oldest", "HeldBack")
"""Promises that a step shows, and not a state."""


@dataclass(frozen=True)
class Setting:
    """What one run of TLC looks at. `keys` and `orders`: of each job, from the oldest."""

    name: str
    keys: tuple[str, ...]
    orders: tuple[str, ...]
    can: tuple[str, ...]
    workers: int = 2
    holding: tuple[str, ...] = ()
    poison: tuple[int, ...] = ()
    max_losses: int = 3
    faults: int = 0
    failures: int = 0
    decisions: int = 0
    is_lively: bool = False
    """Check that jobs end, and not only that no state is wrong. That costs more."""
    removed: tuple[str, ...] = ()
    """Guards that are left out."""

    @property
    def module(self) -> str:
        """Return a module that gives the constants of System their values."""
        names = ", ".join(f"w{n}" for n in range(1, self.workers + 1))
        return "\n".join(
            (
                "---- MODULE Check ----",
                "EXTENDS System",
                f"CONSTANTS {names}",
                f"TheKeys == <<{_texts(self.keys)}>>",
                f"TheOrders == <<{_texts(self.orders)}>>",
                "====\n",
            )
        )

    @property
    def config(self) -> str:
        """Return the configuration of that module."""
        names = [f"w{n}" for n in range(1, self.workers + 1)]
        jobs = ", ".join(str(n) for n in range(1, len(self.keys) + 1))
        lines = ["SPECIFICATION Spec", "CONSTANTS"]
        lines += [f"  {name} = {name}" for name in names]
        lines += [
            f"  Workers = {{{', '.join(names)}}}",
            f"  Jobs = {{{jobs}}}",
            "  KeyOf <- TheKeys",
            "  OrderOf <- TheOrders",
            f"  Holding = {{{_texts(self.holding)}}}",
            f"  Poison = {{{', '.join(map(str, self.poison))}}}",
            f"  MaxLosses = {self.max_losses}",
            f"  Faults = {self.faults}",
            f"  Failures = {self.failures}",
            f"  Decisions = {self.decisions}",
            f"  Can = {{{_texts(self.can)}}}",
            f"  Removed = {{{_texts(self.removed)}}}",
            f"INVARIANTS {' '.join(PROMISES)}",
        ]
        lively = ("Promise2", "Promise7") if self.is_lively else ()
        lines += [f"PROPERTIES {' '.join((*STEPS, *lively))}"]
        lines += [] if self.is_lively else ["SYMMETRY Symmetry"]
        return "\n".join(lines) + "\n"


def _texts(values: tuple[str, ...]) -> str:
    return ", ".join(f'"{value}"' for value in values)


CLAIMS = ("two workers", "lose a reply", "pause", "kill")
SMALL = (
    Setting("fence", ("",), ("",), (*CLAIMS, "release"), faults=1, failures=1),
    Setting("crash", ("", ""), ("", ""), ("two workers", "crash"), faults=1),
    Setting("keys", ("k", "k"), ("", ""), ("redrive", "dismiss", "forget"), workers=1,
            failures=2, decisions=3),
    Setting("order", ("", ""), ("o", "o"), ("redrive", "cancel"), workers=1, holding=("o",),
            failures=1, decisions=1),
    Setting("poison", ("", ""), ("", ""), ("forgive",), workers=3, poison=(1,), max_losses=2),
    Setting("purge", ("",), ("",), ("redrive", "purge"), workers=1, failures=2, decisions=2),
    Setting("retire", ("", ""), ("", ""), ("two workers", "lose a reply"), faults=1),
    Setting("life", ("",), ("",), CLAIMS, faults=1, failures=1, is_lively=True),
)  # fmt: skip
"""What `make model-test` checks."""
LARGE = (
    *SMALL,
    Setting("two faults", ("",), ("",), (*CLAIMS, "release", "crash"), workers=3, faults=2, failures=2),
    Setting("two jobs", ("", ""), ("", ""), (*CLAIMS, "batches", "release"), faults=1, failures=1),
    Setting("crash and kill", ("", ""), ("", ""), ("two workers", "crash", "kill"), faults=2),
    Setting("three of a key", ("k", "k", "k"), ("", "", ""), ("redrive", "dismiss", "forget"),
            workers=1, failures=2, decisions=2),
    Setting("keys and faults", ("k", "k"), ("", ""), (*CLAIMS, "redrive", "forget"), faults=1,
            failures=1, decisions=1),
    Setting("three in order", ("", "", ""), ("o", "o", "o"), ("redrive",), workers=1,
            holding=("o",), failures=1, decisions=1),
    Setting("order and faults", ("", ""), ("o", "o"), (*CLAIMS, "redrive", "crash"), faults=1,
            failures=1, decisions=1),
    Setting("poison and faults", ("", ""), ("", ""), ("forgive", "pause", "kill", "two workers"),
            workers=4, poison=(1,), max_losses=2, faults=1),
    Setting("long life", ("", ""), ("o", "o"), CLAIMS, faults=1, is_lively=True),
)  # fmt: skip
"""What `python -m tools.model large` checks."""


def without(guard: str, setting: Setting) -> Setting:
    """Return a setting without a guard."""
    return replace(setting, removed=(*setting.removed, guard))
