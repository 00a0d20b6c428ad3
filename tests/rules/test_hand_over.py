"""What a handler that hands its jobs over keeps about a send."""

from types import SimpleNamespace
from typing import Any, cast

from redrive.celery.sender import _keep
from redrive.handlers.hand_over import SENDING, Sending
from redrive.handlers.job import Job


def sending(redrives: int, kept: list[dict[str, Any]]) -> Sending:
    """Return the sending of a redrive whose job has kept these checkpoints."""
    last = kept[-1] if kept else None
    job = SimpleNamespace(
        redrives=redrives, last_checkpoint=last, checkpoint=kept.append
    )
    return Sending(cast("Job", job))


def test_a_token_is_of_one_redrive_and_in_no_result() -> None:
    """Each login that may enqueue reads results, and a report with the token ends a job."""
    kept: list[dict[str, Any]] = []
    first = sending(1, kept)
    first.keep(SENDING)
    again, second = sending(1, kept), sending(2, kept)

    assert again.token == first.token
    assert again.may_repeat
    assert second.token != first.token
    assert not second.may_repeat
    assert _keep({"outcome": "succeeded", "token": first.token}) == {
        "outcome": "succeeded"
    }
