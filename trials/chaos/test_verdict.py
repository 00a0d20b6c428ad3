"""The judge sees each fault. Job 1 is given a history; each test spoils it."""

from trials.chaos.ledger import Entry
from trials.chaos.verdict import EVERYBODY, Facts, Fault, Verdict, judge

RUNNER, SUPERVISOR = 11, 10
OTHER_RUNNER, OTHER_SUPERVISOR = 21, 20


def start(token: int, at: float, pid: int = RUNNER, parent: int = SUPERVISOR) -> Entry:
    return Entry("start", 1, token, pid, parent, at)


def end(token: int, at: float, pid: int = RUNNER, parent: int = SUPERVISOR) -> Entry:
    return Entry("end", 1, token, pid, parent, at)


def of(*entries: Entry, faults: tuple[Fault, ...] = (), **facts: object) -> Verdict:
    known = {
        "acknowledged": {1},
        "ledger": {1: sorted(entries, key=lambda entry: entry.at)},
        "done": {1: 100.0},
        "live": set(),
        "dead": set(),
        "doomed": set(),
        "faults": list(faults),
        "silences": [],
    }
    return judge(Facts(**known | facts))


def faulty(verdict: Verdict) -> dict[str, list[int]]:
    return {name: found for name, found in verdict.failures().items() if found}


def test_a_job_that_ran_once_and_went_is_fine():
    verdict = of(start(1, 5), end(1, 6))

    assert faulty(verdict) == {}
    assert (verdict.completed, verdict.duplicates) == (1, 0)


def test_a_job_that_nobody_has_and_nobody_finished_is_lost():
    assert faulty(of(start(1, 5), end(1, 6), done={})) == {"lost": [1]}
    assert faulty(of(start(1, 5))) == {"lost": [1]}


def test_a_job_that_is_still_there_is_stuck():
    assert faulty(of(start(1, 5), live={1}, done={})) == {"stuck": [1]}


def test_an_innocent_among_the_dead_is_seen_and_the_doomed_belong_there():
    assert faulty(of(start(1, 5), dead={1})) == {"innocents_dead": [1]}
    assert faulty(of(start(1, 5), dead={1}, doomed={1})) == {}


def test_a_job_under_which_we_killed_three_processes_is_counted_by_itself():
    runs = [start(n, 10 * n, pid=100 + n) for n in (1, 2, 3)]
    kills = [Fault("kill_runner", 100 + n, 10 * n + 1, 10 * n + 1) for n in (1, 2, 3)]
    verdict = of(*runs, dead={1}, faults=tuple(kills))

    assert (faulty(verdict), verdict.accused) == ({}, [1])
    assert faulty(of(*runs, dead={1}, faults=tuple(kills[:2]))) == {
        "innocents_dead": [1]
    }


def test_a_second_run_needs_a_reason():
    runs = start(1, 5), end(1, 6), start(2, 30, OTHER_RUNNER), end(2, 31, OTHER_RUNNER)

    assert faulty(of(*runs)) == {"unexplained": [1]}
    for pid in (RUNNER, SUPERVISOR, EVERYBODY):
        killed = Fault("immediate_stop", pid, 7, 7)
        assert faulty(of(*runs, faults=(killed,))) == {}
    assert (
        of(
            *runs, faults=(Fault("immediate_stop", EVERYBODY, 7, 7),)
        ).ran_again_after_return
        == 1
    )


def test_a_fault_of_somebody_else_or_of_another_time_is_no_reason_nor_is_a_cut():
    runs = start(1, 5), end(1, 6), start(2, 30, OTHER_RUNNER), end(2, 31, OTHER_RUNNER)

    for fault in (
        Fault("kill_supervisor", OTHER_SUPERVISOR, 7, 7),
        Fault("kill_supervisor", SUPERVISOR, 40, 40),
        Fault("cut_settle", EVERYBODY, 7, 7),
    ):
        assert faulty(of(*runs, faults=(fault,))) == {"unexplained": [1]}


def test_a_run_that_failed_by_itself_is_the_reason_for_the_next():
    failed = Entry("fail", 1, 1, RUNNER, SUPERVISOR, 6)

    assert faulty(of(start(1, 5), failed, start(2, 7), end(2, 8))) == {}


def test_a_job_that_went_while_its_newest_run_was_not_done_was_settled_by_a_stranger():
    paused = Fault("pause_group", SUPERVISOR, 6, 20)
    stranger = start(2, 15, OTHER_RUNNER, OTHER_SUPERVISOR)
    runs = start(1, 5), end(1, 21), stranger

    verdict = of(*runs, end(2, 120, OTHER_RUNNER), faults=(paused,))
    assert faulty(verdict) == {"stale_accepted": [1]}
    assert faulty(of(*runs, faults=(paused,))) == {"stale_accepted": [1]}
    assert faulty(of(*runs, end(2, 99, OTHER_RUNNER), faults=(paused,))) == {}


def test_of_two_runs_with_one_token_the_one_whose_server_outlived_the_split_counts():
    runs = (
        start(1, 5),
        end(1, 6),
        start(1, 5.1, OTHER_RUNNER),
        end(1, 6.1, OTHER_RUNNER),
    )
    split = Fault("split", EVERYBODY, 4, 9)

    assert faulty(of(*runs, faults=(split,), done={1: 6.05})) == {}
    for fault in split._replace(kind="fail_over"), split._replace(since=7.0):
        found = faulty(of(*runs, faults=(fault,), done={1: 6.05}))
        assert "stale_accepted" in found


def test_a_run_that_was_frozen_before_it_began_is_older_than_the_one_that_overtook_it():
    paused = Fault("pause_group", SUPERVISOR, 4, 20)
    overtook = start(2, 15, OTHER_RUNNER, OTHER_SUPERVISOR), end(2, 16, OTHER_RUNNER)

    assert faulty(of(start(1, 20.5), *overtook, faults=(paused,), done={1: 30.0})) == {}
