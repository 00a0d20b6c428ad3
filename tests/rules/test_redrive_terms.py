"""What a handler may say about redrives, and what the supervisor learns."""

from typing import Any

import pytest

from redrive import Handlers, Heal
from redrive.worker.kinds import KnownKinds
from redrive.worker.run.loop import _kind  # pyright: ignore[reportPrivateUsage] # its message
from redrive.worker.store import RedriveTerms


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"redrive_rate": 0}, "redrive_rate must be jobs per second, 0.001 to"),
        # the database cannot add such a wait to an instant, which stopped all limits
        ({"redrive_rate": 1e-300}, "redrive_rate must be jobs per second, 0.001 to"),
        ({"redrive_rate": True}, "redrive_rate must be jobs per second, 0.001 to"),
        ({"redrive_rate": float("nan")}, "redrive_rate must be jobs per second"),
        ({"redrive_rate": 1_000_001}, "0.001 to 1,000,000"),
        ({"repeatable": "no"}, "repeatable must be True or False"),
        (
            {"repeatable": False, "heal": Heal()},
            "heal redrives by itself, but repeatable=False forbids that",
        ),
    ],
)
def test_an_option_that_cannot_be_is_refused(
    options: dict[str, Any], fault: str
) -> None:
    """When the handler is declared, with the field and the rule."""
    with pytest.raises(ValueError, match=fault):
        Handlers().handle("a.b", **options)


def test_the_supervisor_learns_what_handlers_say() -> None:
    """A kind below a prefix has terms of its own, if only the usual ones."""
    jobs = Handlers()
    for kind, options in {
        "charge": {"redrive_rate": 5},
        "wire": {"repeatable": False},
        "plain": {},
    }.items():

        @jobs.handle(kind, **options)
        def run(payload: dict[str, Any]) -> None:
            del payload

    kinds = {handler.kind: _kind(handler) for handler in jobs}
    plain = kinds["plain"]
    known = KnownKinds()
    known.learn(kinds | {"wir*": kinds["wire"], "wir.e": plain, "pla*": plain})

    assert known.redrives() == {
        "charge": RedriveTerms(5, repeatable=True),
        "wire": RedriveTerms(None, repeatable=False),
        "wir*": RedriveTerms(None, repeatable=False),
        "wir.e": RedriveTerms(),
    }
