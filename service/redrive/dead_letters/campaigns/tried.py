"""What came of trying the handlers on some dead letters of a plan."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tried:
    """Results of the trials.

    Attributes:
        returned: attempts whose handler returned and made no refused call.
        failed: cause -> number of failures.
        again: number of failures that equal the failure of the dead letter.
        stopped_at_call: attempts that made an outgoing call; the rest of their work is
            unknown.
        timed_out: attempts that took longer than their policy or MAX_SECONDS allows.
    """

    returned: int = 0
    failed: dict[str, int] = field(default_factory=dict[str, int])
    again: int = 0
    stopped_at_call: int = 0
    timed_out: int = 0
