"""The soak, in small; `make soak` takes two hours."""

from pathlib import Path

import pytest

from trials.soak.soak import Soak


@pytest.mark.long
def test_handlers_that_misbehave_cost_the_others_no_job_and_no_second_run(
    tmp_path: Path,
) -> None:
    verdict = Soak(tmp_path, seed=1, minutes=0.7, tell=print).run(
        rate=4, bad_every=(0.4, 1.5)
    )

    assert not verdict.lost
    assert not verdict.repeated
    assert not verdict.unclean
    assert not verdict.unsettled
