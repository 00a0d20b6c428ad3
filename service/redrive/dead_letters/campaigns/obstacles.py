"""Obstacles of a redrive: why a dead letter stays, and what to do about it."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Allow:
    """Obstacles that an operator has confirmed for a redrive.

    Attributes:
        quarantined: redrive quarantined dead letters. One that is named by its id
            needs no confirmation.
        invalid: redrive invalid payloads that nobody has corrected.
        repeat: run jobs again whose handlers say `repeatable=False`. It counts only
            for dead letters that are named by their ids.
    """

    quarantined: bool = False
    invalid: bool = False
    repeat: bool = False

    def described(self) -> dict[str, bool]:
        """Return the fields that are added to a campaign's filter."""
        fields = {
            "include_quarantined": self.quarantined,
            "include_invalid": self.invalid,
            "repeat": self.repeat,
        }
        return {name: True for name, is_allowed in fields.items() if is_allowed}


class Obstacle(NamedTuple):
    """Why dead letters stay, and what to do; `{id}` stands for the job's id."""

    why: str
    remedy: str = ""


OBSTACLES = {
    "succeeded": Obstacle(
        "the same work has succeeded since", "dismiss it: redrive dlq dismiss {id}"
    ),
    "max_redrives": Obstacle(
        "redriven too often already", "add --max-redrives with a larger number"
    ),
    "muted": Obstacle("its group is muted"),
    "not_imported": Obstacle(
        "its kind is sent to a broker, and it did not come from there",
        "find out who has added it, then: redrive dlq dismiss {id}",
    ),
    "not_storable": Obstacle(
        "a job may not hold its payload or headers: they are too large or malformed",
        "correct the payload: redrive dlq edit {id}; or: redrive dlq dismiss {id}",
    ),
    "not_repeatable": Obstacle(
        "its handler says that the job must not run twice",
        "see what it has done, then: redrive dlq redrive {id} --repeat",
    ),
    "invalid": Obstacle(
        "the payload is invalid, was not edited, and no newer version is there",
        "correct it: redrive dlq edit {id}; or deploy a fix; or add --include-invalid",
    ),
    "edited": Obstacle(
        "it was edited after the plan",
        "plan its redrive again: redrive dlq redrive {id}",
    ),
    "quarantined": Obstacle(
        "it died again of the same cause",
        "redrive it by its id, or add --include-quarantined",
    ),
    "not_waiting": Obstacle("it has ended, or is retried already"),
    "conflict": Obstacle("a live job has its idempotency key", "wait for that job"),
}
"""Cause, as redrive_obstacle returns it -> its words."""


def stays(cause: str, job: object = "ID") -> str:
    """Return why a dead letter stays and what to do, or else the cause itself."""
    known = OBSTACLES.get(cause)
    if known is None:
        return cause
    if not known.remedy:
        return known.why

    remedy = known.remedy.format(id=job)
    return f"{known.why}; {remedy}"
