"""Load of a worker: redrive.worker.claim.load."""

from itertools import product

import pytest

from redrive.worker.claim.load import Load, load_of

NAMES = (
    "has_jobs",
    "has_unclaimed_rest",
    "has_undelivered",
    "is_settling",
    "has_free_slots",
)


@pytest.mark.parametrize(
    ("load", "facts"),
    [
        (Load.IDLE, ""),
        (Load.IDLE, "has_free_slots"),
        (Load.IDLE, "has_unclaimed_rest has_free_slots"),
        (Load.STEADY, "has_jobs"),
        (Load.STEADY, "has_jobs has_free_slots"),
        (Load.STEADY, "has_jobs is_settling"),
        (Load.STEADY, "is_settling"),
        (Load.STEADY, "has_jobs has_undelivered is_settling has_free_slots"),
        (Load.CLAIM_FIRST, "is_settling has_free_slots"),
        (Load.CLAIM_FIRST, "has_jobs is_settling has_free_slots"),
        (Load.BACKLOG, "has_unclaimed_rest is_settling"),
        (Load.BACKLOG, "has_jobs has_unclaimed_rest"),
        (Load.BACKLOG, "has_jobs has_unclaimed_rest is_settling has_free_slots"),
        (Load.BACKLOG, "has_jobs has_unclaimed_rest has_undelivered is_settling"),
    ],
)
def test_the_load_follows_from_what_the_worker_has_to_do(load: Load, facts: str):
    given = facts.split()

    assert load_of(**{name: name in given for name in NAMES}) is load


def test_a_worker_claims_first_only_when_no_older_job_waits():
    for values in product([False, True], repeat=len(NAMES)):
        facts = dict(zip(NAMES, values, strict=True))
        if load_of(**facts) is Load.CLAIM_FIRST:
            assert facts["is_settling"]
            assert facts["has_free_slots"]
            assert not facts["has_unclaimed_rest"]
            assert not facts["has_undelivered"]
