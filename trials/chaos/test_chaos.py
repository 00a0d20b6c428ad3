"""Everything that one machine can break, in the short tier; REDRIVE_CHAOS_SEED repeats a run."""

import json
import os
import time

import pytest

from trials.chaos.monkey import run
from trials.chaos.redrive_system import DRAIN
from trials.chaos.schedule import SHORT, as_text, plan

SEED = int(os.environ.get("REDRIVE_CHAOS_SEED", time.time_ns() % 1_000_000))


@pytest.mark.chaos
@pytest.mark.slow
def test_no_job_is_lost_stuck_or_run_twice_without_a_reason_whatever_breaks(capsys):
    with capsys.disabled():
        print(f"\nseed {SEED}, schedule:\n{as_text(plan(SHORT, SEED))}")
        outcome = run(SHORT, SEED, print)
        print(json.dumps(outcome.as_json()), outcome.told(), sep="\n")

    assert outcome.told() == ""
    assert outcome.slowest_term < DRAIN + 6 or os.getloadavg()[0] > 4
    assert outcome.verdict.jobs == SHORT.jobs + outcome.held
    assert set(outcome.faults) | set(outcome.left_out) == set(SHORT.faults)
