"""celery/celery #6990.

A handler gives work to a pool of processes. What fails there arrives as it was raised.
"""

import pickle
from datetime import timedelta

import pytest

from redrive import Cancel, GiveUp, Retry, Snooze, StaleClaim
from redrive.errors import InvalidJob
from redrive.signals import DependencyOpen

RAISED = [
    InvalidJob("payload.n", "must be finite"),
    StaleClaim("job 1"),
    Retry("later", after=5),
    Snooze(timedelta(hours=1)),
    GiveUp("no"),
    Cancel("no"),
    DependencyOpen("smtp", 5.0),
]


@pytest.mark.parametrize("raised", RAISED, ids=lambda raised: type(raised).__name__)
def test_an_exception_arrives_as_it_was_raised(raised: Exception) -> None:
    arrived = pickle.loads(pickle.dumps(raised))
    assert (type(arrived), str(arrived)) == (type(raised), str(raised))
    assert vars(arrived) == vars(raised)
