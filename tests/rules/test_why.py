"""Why a job does not run, each answer made true by what is known."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from redrive.jobs.why.answer import (
    Around,
    Breaker,
    Code,
    Dead,
    Head,
    Hold,
    Line,
    Pause,
    Waiting,
    Why,
    Worker,
    why,
    why_dead,
    why_queue,
)
from redrive.rules.instants import span

NOW = datetime(2026, 3, 1, 14, 0, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
JUST_NOW = NOW - timedelta(seconds=2)
PAUSED = Pause("ada", "the bank is down", NOW - timedelta(hours=1))
ASKING = Worker("w1", ["mail.*"], None, asked=NOW, slots=4, busy=1)
HERE = Around(NOW, workers=[ASKING])
DUE = Waiting("mail.send", "default", "ready", JUST_NOW, ahead=0)
GONE = replace(ASKING, seen=NOW - timedelta(minutes=5))
OPEN = Breaker("smtp", "open", open_until=LATER)
DEPENDS = replace(ASKING, depends_on={"mail.*": ["smtp"]})


def later(**fields: object) -> Waiting:
    return replace(DUE, state="scheduled", run_at=LATER, ahead=None, **fields)


ANSWERS = [
    (
        DUE,
        HERE,
        Code.DUE,
        "due for 2 s; 0 due jobs stand before it in its lane; 1 live worker can",
    ),
    (
        replace(DUE, run_at=NOW - timedelta(minutes=3)),
        HERE,
        Code.DUE,
        "1 of 4 slots busy; it should run by now",
    ),
    (
        replace(DUE, state="running", worker="w1", seconds=65.0),
        HERE,
        Code.RUNNING,
        "run it for 65 s",
    ),
    (replace(DUE, state="running", worker="w1"), HERE, Code.RUNNING, "has fetched it"),
    (later(), HERE, Code.SCHEDULED, "due in 5 min, at 14:05:00 UTC"),
    (
        replace(later(), state="retrying", failed="Timeout: no answer"),
        HERE,
        Code.RETRYING,
        "its last attempt failed: Timeout: no answer",
    ),
    (later(), replace(HERE, pauses={"default": PAUSED}), Code.SCHEDULED, "ada paused"),
    (
        DUE,
        replace(HERE, pauses={"default": PAUSED}),
        Code.QUEUE_PAUSED,
        "ada paused queue default at 13:00:00 UTC: the bank is down",
    ),
    (
        replace(
            DUE, state="blocked", run_at=None, head=Head("K", 3, 17, "retrying", LATER)
        ),
        HERE,
        Code.BEHIND_KEY,
        "third in line behind ordering key K; the first is job 17, which is retrying until 14:05",
    ),
    (
        replace(DUE, head=Head("K", 4, 17, "running", JUST_NOW)),
        HERE,
        Code.BEHIND_KEY,
        "4th in line behind ordering key K; the first is job 17, which is running",
    ),
    (
        replace(DUE, head=Head("K", 2, 17, "ready", JUST_NOW)),
        HERE,
        Code.BEHIND_KEY,
        "which is due",
    ),
    (
        replace(DUE, head=Head("K", 2, 17, "blocked", None)),
        HERE,
        Code.BEHIND_KEY,
        "will be woken",
    ),
    (
        replace(DUE, state="blocked", run_at=None, hold=Hold("K", 3, 17)),
        HERE,
        Code.BEHIND_KEY,
        "third in line behind ordering key K, held by dead letter 17 (redrive or dismiss it)",
    ),
    (
        replace(DUE, state="blocked", run_at=None),
        HERE,
        Code.BEHIND_KEY,
        "first of its ordering",
    ),
    (
        replace(DUE, state="blocked", run_at=None, batch=7),
        HERE,
        Code.BATCH_RUNNING,
        "waits for batch 7",
    ),
    (
        DUE,
        Around(NOW, breakers={"smtp": OPEN}, workers=[DEPENDS]),
        Code.BREAKER_OPEN,
        "breaker smtp is open until 14:05:00 UTC",
    ),
    (
        later(was_given_back=True),
        Around(NOW, breakers={"smtp": OPEN}, workers=[DEPENDS]),
        Code.BREAKER_OPEN,
        "breaker smtp is open",
    ),
    (
        later(),
        Around(NOW, breakers={"smtp": OPEN}, workers=[DEPENDS]),
        Code.SCHEDULED,
        "due in 5 min",
    ),
    (
        DUE,
        Around(
            NOW,
            breakers={"smtp": Breaker("smtp", "open", None, "ada", "they asked us to")},
            workers=[DEPENDS],
        ),
        Code.BREAKER_OPEN,
        "ada holds breaker smtp open: they asked us to",
    ),
    (
        DUE,
        Around(NOW, breakers={"smtp": Breaker("smtp", "half_open")}, workers=[DEPENDS]),
        Code.BREAKER_OPEN,
        "one job at a time",
    ),
    (
        DUE,
        Around(
            NOW,
            workers=[
                Worker("w1", ["a.b"], ["default"]),
                Worker("w2", ["mail.send"], ["bulk"]),
            ],
        ),
        Code.NO_WORKER,
        "handles mail.send on queue default; workers for it serve: bulk; workers of this queue",
    ),
    (
        DUE,
        Around(NOW, workers=[], seen=NOW - timedelta(minutes=5)),
        Code.NOT_POLLED,
        "no live worker serves queue default; the last worker of any queue was seen 5 min ago",
    ),
    (
        DUE,
        Around(NOW, gone=[GONE, replace(GONE, queues=["bulk"], seen=NOW)], seen=NOW),
        Code.NOT_POLLED,
        "no live worker serves queue default; one that would was last seen 5 min ago",
    ),
    (
        DUE,
        Around(
            NOW, gone=[replace(GONE, kinds=["a.b"])], seen=NOW - timedelta(minutes=4)
        ),
        Code.NOT_POLLED,
        "no live worker serves queue default; the last worker of any queue was seen 4 min ago",
    ),
    (
        DUE,
        Around(NOW, workers=[Worker("w1", ["a.b"], ["bulk"])], gone=[GONE], seen=NOW),
        Code.NOT_POLLED,
        "the live ones serve: bulk; one that would was last seen 5 min ago",
    ),
    (
        DUE,
        Around(NOW, workers=[Worker("w1", ["a.b"], ["bulk"])]),
        Code.NOT_POLLED,
        "the live ones serve: bulk",
    ),
    (
        DUE,
        Around(
            NOW, workers=[replace(ASKING, asked=NOW - timedelta(minutes=6), busy=4)]
        ),
        Code.NOT_POLLED,
        "nobody has polled queue default for 6 min: 1 live worker can run it, 4 of 4 slots busy",
    ),
]


@pytest.mark.parametrize(("job", "around", "code", "text"), ANSWERS)
def test_each_answer_is_given_where_it_is_true(
    job: Waiting, around: Around, code: Code, text: str
) -> None:
    answer = why(job, around)

    assert answer.code == code
    assert text in answer.text


def test_a_queue_is_asked_the_same() -> None:
    """By whom and why it is paused, and that nobody serves it."""
    paused = why_queue("default", replace(HERE, pauses={"default": PAUSED}))
    alone = why_queue("default", Around(NOW))

    assert paused is not None
    assert (paused.code, "ada" in paused.text) == (Code.QUEUE_PAUSED, True)
    assert alone is not None
    assert alone == Why(Code.NOT_POLLED, "no live worker serves queue default")
    assert why_queue("default", HERE) is None


def test_a_dead_letter_says_what_redrives_it() -> None:
    dead = Dead(17, "gave_up")

    alone = why_dead(dead)
    coming = why_dead(replace(dead, campaign=3))

    assert alone == Why(
        Code.ENDED, "it died: gave_up; to redrive it: redrive dlq redrive 17"
    )
    assert coming == Why(
        Code.IN_CAMPAIGN, "it died: gave_up; campaign 3 will redrive it"
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (0.254783, "0.3 s"),
        (59, "59 s"),
        (60, "1 min"),
        (90, "90 s"),
        (7_199, "119 min"),
        (3600, "1 h"),
        (86_400, "24 h"),
        (200_000, "2 days"),
    ],
)
def test_a_length_of_time_is_said_in_the_unit_that_fits(
    seconds: float, said: str
) -> None:
    assert span(seconds) == said


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            Line("emails", 3, 20, 20, None),
            "limit emails holds 20 of 20; it is the third in line",
        ),
        (
            Line("c:7", 1, 0, None, 1 / 3),
            "limit c:7 lets 20/m begin; it is the first in line",
        ),
        (
            Line("c:7", 1001, 0, 5, None),
            (
                "limit c:7 has room; it is the 1001th or later in line, and will be woken within"
                " seconds"
            ),
        ),
    ],
)
def test_a_job_behind_a_limit_says_which_and_its_place(line: Line, text: str) -> None:
    worker = Worker("w")
    job = Waiting("a.b", "default", "blocked", None, line=line)

    assert why(job, Around(NOW, workers=[worker])) == Why(Code.LIMITED, text)
    assert "also: no live worker" in why(job, Around(NOW)).text
