"""What somebody else's dead letter must be, and what is made of it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from redrive.dead_letters.imports.document import frames, read
from redrive.errors import InvalidJob
from redrive.rules.model import Category, Reason

LETTER: dict[str, Any] = {"kind": "mail.send", "payload": {"to": 17}}
PYTHON = """Traceback (most recent call last):
  File "/app/worker.py", line 3, in run
ValueError: the first one

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/usr/lib/python3.12/site-packages/celery/app/trace.py", line 451, in trace_task
    R = retval = fun(*args, **kwargs)
  File "/srv/releases/42/shop/mail.py", line 12, in send
    raise ValueError(to)
ValueError: no such customer: 17
"""
RUBY = """/srv/shop/app/mail.rb:12:in `send'
/usr/lib/ruby/gems/3.2.0/gems/sidekiq-7.1.0/lib/sidekiq/processor.rb:202:in `execute_job'
"""
NODE = """Error: no such customer
    at send (/srv/shop/mail.js:12:9)
    at async Consumer.run (/srv/shop/node_modules/bull/lib/queue.js:7:3)
"""
JAVA = """java.lang.IllegalStateException: no such customer
\tat com.shop.Mail.send(Mail.java:12)
"""


@pytest.mark.parametrize(
    ("stack", "found"),
    [
        (
            PYTHON,
            [("trace.py", "trace_task", 451, False), ("mail.py", "send", 12, True)],
        ),
        (
            RUBY,
            [
                ("processor.rb", "execute_job", 202, False),
                ("mail.rb", "send", 12, True),
            ],
        ),
        (NODE, [("queue.js", "Consumer.run", 7, False), ("mail.js", "send", 12, True)]),
        (JAVA, [("Mail.java", "com.shop.Mail.send", 12, True)]),
        ("it broke", []),
        ("", []),
    ],
)
def test_a_stack_is_read_outermost_first(stack: str, found: list[tuple[Any, ...]]):
    names = ("module", "function", "line", "own")

    assert [tuple(frame[n] for n in names) for frame in frames(stack)] == [*found]


def test_what_is_not_told_has_a_default():
    letter = read(LETTER, "sqs")

    assert letter.failure.error_class == "NotRecorded"
    assert letter.failure.message == "sqs kept no message"
    assert (letter.reason, letter.attempts) == (Reason.ATTEMPTS_EXHAUSTED, 1)
    assert (letter.source_id, letter.died_at, letter.created_at) == (None, None, None)
    assert letter.job["headers"] == '{"source":"sqs"}'
    assert letter.job["queue"] == "default"


def test_what_is_told_is_kept():
    letter = read(
        LETTER
        | {
            "queue": "mail",
            "reason": "gave_up",
            "category": "auth",
            "attempts": 25,
            "source_id": 7,
        }
        | {"died_at": "2026-03-01T12:00Z", "created_at": 1_772_300_000.5}
        | {"headers": {"a": 1}, "stack": PYTHON.splitlines()},
        "sidekiq",
    )

    assert (letter.reason, letter.failure.category) == (Reason.GAVE_UP, Category.AUTH)
    assert letter.attempts == 25
    assert letter.died_at == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert letter.created_at == datetime(2026, 2, 28, 17, 33, 20, 500_000, tzinfo=UTC)
    assert letter.job["headers"] == '{"a":1,"source":"sidekiq","source_id":"7"}'
    assert letter.failure.detail["stack"][-1]["function"] == "send"


def test_failures_alike_are_one_group_and_others_are_not():
    def group(**told: Any) -> str:
        return read(
            LETTER | {"error_class": "ValueError", **told}, "x"
        ).failure.fingerprint

    alike = {
        group(message=f"no such customer: {n}", stack=PYTHON) for n in (17, 1 << 40)
    }
    moved = group(
        message="no such customer: 17", stack=PYTHON.replace("releases/42", "43")
    )
    others = {
        group(message="no such account: 17", stack=PYTHON),
        group(message="no such customer: 17"),
        group(message="no such customer: 17", stack=PYTHON, kind="mail.receive"),
        group(message="no such customer: 17", stack=PYTHON, error_class="KeyError"),
    }

    assert alike == {moved}
    assert len(others - alike) == 4


@pytest.mark.parametrize(
    ("error_class", "category"),
    [
        ("TimeoutError", Category.TRANSIENT),
        ("TypeError", Category.BUG),
        ("httpx.TransportError", Category.TRANSIENT),
        ("Net::ReadTimeout", Category.OTHER),
    ],
)
def test_its_category_is_that_of_its_class(error_class: str, category: Category):
    assert read(LETTER | {"error_class": error_class}, "x").failure.category == category


def test_no_secret_of_it_is_kept():
    secret = "hunter2-and-more"
    letter = read(
        {"kind": "a", "payload": {"password": secret}, "message": f"refused: {secret}"}
        | {
            "error_class": f"E{secret}",
            "stack": f'File "/x/{secret}", line 1, in {secret}',
        },
        "x",
    )

    assert secret not in str(letter.failure)
    assert letter.failure.detail["stack"]


@pytest.mark.parametrize(
    ("told", "path", "rule"),
    [
        ({"kindd": 1}, "kindd", "did you mean 'kind'?"),
        ({"kind": "1"}, "kind", "must match"),
        ({"payload": None}, "payload", "must be an object, not null"),
        ({"payload": [1]}, "payload", "must be an object, not list"),
        ({"payload": {"x": "y" * 300_000}}, "payload", "at most 262144"),
        ({"headers": 1}, "headers", "must be an object"),
        ({"tenant": ""}, "tenant", "1 to 255"),
        ({"reason": "died"}, "reason", "must be one of attempts_exhausted, "),
        ({"category": "network"}, "category", "must be one of transient, "),
        ({"error_class": 7}, "error_class", "must be a text"),
        ({"message": "x" * 262_145}, "message", "at most 262144 characters"),
        ({"stack": [1]}, "stack", "must be a text, or a list of its lines"),
        ({"attempts": 0}, "attempts", "must lie between 1 and"),
        ({"died_at": "yesterday"}, "died_at", "write 2026-03-01T12:00Z"),
        ({"died_at": 1_772_300_000_000}, "died_at", "seconds since 1970"),
        ({"died_at": []}, "died_at", "seconds since 1970"),
        ({"created_at": "1999-01-01"}, "created_at", "years 2000 and 9999"),
        (
            {"created_at": "2026-03-02", "died_at": "2026-03-01"},
            "created_at",
            "must not lie after died_at",
        ),
        ({"source_id": ""}, "source_id", "1 to 255 characters"),
    ],
)
def test_what_cannot_be_is_named_with_its_rule(
    told: dict[str, Any], path: str, rule: str
):
    with pytest.raises(InvalidJob) as caught:
        read(LETTER | told, "x")

    assert caught.value.path == path
    assert rule in caught.value.rule


def test_a_kind_is_needed():
    with pytest.raises(InvalidJob, match="kind: is missing"):
        read({"payload": {}}, "x")
