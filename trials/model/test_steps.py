"""How the notes of a record become steps of the model."""

from typing import Any

from tools.model.trace import Step, runs, steps_of, transactions

NEW = {
    "what": "job new",
    "kind": "a.b",
    "key": None,
    "queue": "default",
    "okey": None,
    "deliveries": 0,
    "redrives": 0,
    "losses": 0,
    "parked": False,
}


def note(what: str, seq: int = 0, xid: int = 0, **detail: Any) -> dict[str, Any]:
    """Return a note as the recorder writes it."""
    return {"seq": seq, "xid": xid, "what": what, **detail}


def asked(took: list[int], *settlements: tuple[int, int, int, int]) -> dict[str, Any]:
    """Return the note of a call of complete: worker, claim, job and delivery of each settlement."""
    names = ("workers", "claims", "ids", "deliveries")
    columns = dict(zip(names, map(list, zip(*settlements, strict=True)), strict=True))
    return note("asked", **columns, took=took)


def test_the_last_note_of_a_transaction_gives_its_place():
    notes = [note("a", 1, xid=7), note("b", 2, xid=8), note("c", 3, xid=7)]

    assert [[one["what"] for one in of] for of in transactions(notes)] == [
        ["b"],
        ["a", "c"],
    ]


def test_a_job_that_was_added_and_withdrawn_is_no_step():
    notes = [NEW | {"id": 1}, note("job gone", id=1, deliveries=0)]

    assert list(steps_of(notes)) == []


def test_of_two_settlements_of_one_job_the_row_shows_which_counted():
    notes = [
        note("job gone", id=5, deliveries=2),
        asked([5], (7, 1, 5, 2), (8, 2, 5, 3)),
    ]

    assert list(steps_of(notes)) == [
        Step("Refused", (5,), 7, 1, values={"d": 2}),
        Step("Complete", (5,), 8, 2, values={"d": 3, "kept": []}),
    ]


def test_a_dead_letter_that_is_missing_is_a_step_that_no_model_has():
    notes = [
        note("job gone", id=5, deliveries=0),
        asked([5], (7, 1, 5, 1)) | {"outcomes": ["dead"]},
    ]

    assert [step.op for step in steps_of(notes)] == ["in neither table"]


def test_a_row_that_goes_without_a_settlement_was_cancelled():
    assert list(steps_of([note("job gone", id=5, deliveries=0)])) == [
        Step("Cancel", (5,))
    ]


def test_jobs_that_share_no_key_are_runs_of_their_own_and_like_ones_are_one_run():
    notes = [
        NEW | {"id": 1, "seq": 1, "xid": 1},
        NEW | {"id": 2, "seq": 2, "xid": 1},
        NEW | {"id": 3, "seq": 3, "xid": 2, "key": "k"},
        note("job gone", 4, xid=3, id=3, deliveries=0),
        NEW | {"id": 4, "seq": 5, "xid": 4, "key": "k"},
    ]

    assert sorted(runs(notes).values()) == [[1], [3, 4]]


def test_a_dead_letter_that_nobody_asked_for_is_not_purged():
    asked_for = note("purges", ids=[5], generations=[1])
    gone = [note("dead gone", id=5, redrives=redrives) for redrives in (0, 1)]

    assert list(steps_of([*gone, asked_for])) == [
        Step("purged without being asked", (5,), values={"redrives": 0}),
        Step("Purge", (5,), values={"redrives": 1}),
    ]


def test_a_job_that_its_worker_still_knows_is_not_given_back():
    was = {"deliveries": 0, "losses": 0, "parked": False}
    changed = note("job changed", id=5, was=was, **(was | {"deliveries": 1}))

    first, _ = steps_of([changed, note("retired", worker=7, known=[5])])

    assert first == Step("gave back a known job", (5,))


def test_a_handler_that_names_no_claim_is_refused():
    notes = [asked([], (7, 1, 5, 1)) | {"claims": [None]}]

    assert list(steps_of(notes)) == [Step("Refused", (5,), 7, 0, values={"d": 1})]


def test_only_the_worker_that_says_so_runs_a_job_alone():
    notes = [note("worker alone", id=7), note("worker alone", id=8)]

    assert list(steps_of([*notes, note("runs alone", worker=7)])) == [
        Step("alone without being asked", worker=8)
    ]
