"""What is hidden, and that a thousand failures read as their few causes."""

import contextlib
import json
import random
import re
import string
import time
import uuid
from typing import Any
from urllib.parse import quote

import psycopg
import psycopg2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr, ValidationError

from redrive import Handlers
from redrive.handlers import Handler
from redrive.rules.attempts.failure import describe, normalise
from redrive.rules.payloads import credentials
from redrive.rules.payloads.redact import (
    HIDDEN,
    MAX_SECRETS,
    redact,
    scrub,
    secret_values,
    secrets_of_environment,
)
from tests.postgres import Database
from tests.rules.secrets_table import (
    CANARY,
    CREDENTIALS,
    DISGUISED,
    KEYS,
    OTHER_KEYS,
    TEXTS,
    ordinary,
)


def test_a_key_that_sounds_secret_hides_its_value():
    """Keys."""
    shown = [
        key
        for key in KEYS
        if redact({"a": [{key: {"b": CANARY}}]}) != {"a": [{key: HIDDEN}]}
    ]

    assert shown == []
    assert len(KEYS) > 116
    assert all(secret_values({key: CANARY}) == {CANARY} for key in KEYS)


def test_other_keys_do_not():
    """What sounds like a secret, and is none."""
    assert redact(dict.fromkeys(OTHER_KEYS, "x")) == dict.fromkeys(OTHER_KEYS, "x")


def test_a_name_and_its_value_side_by_side_are_a_key_too():
    """As Kubernetes and HTTP write them."""
    pair = {"name": "DB_PASSWORD", "value": CANARY}

    assert redact({"env": [pair]}) == {
        "env": [{"name": "DB_PASSWORD", "value": HIDDEN}]
    }
    assert secret_values({"env": [pair]}) == {CANARY}


def test_declared_keys_are_secret_at_any_depth():
    assert redact({"a": [{"patient": CANARY}]}, {"patient"}) == {
        "a": [{"patient": HIDDEN}]
    }
    assert secret_values(
        {"a": {"patient": ["1234", {"x": CANARY}, 98765, True, None, "abc"]}},
        {"patient"},
    ) == {"1234", CANARY, "98765"}


def test_text_in_a_payload_is_looked_through_as_well():
    assert CANARY not in json.dumps(
        redact(
            {
                "url": f"amqp://u:{CANARY}@h/v",
                "log": [f"Authorization: Bearer {CANARY}"],
            }
        )
    )


def _shown(shapes: list[str]) -> list[str]:
    """The shapes that keep their secret after scrubbing, or a piece of it."""
    return [
        shape
        for shape in shapes
        if any(
            piece in scrub(shape.format(CANARY)) for piece in ("Zx9", "canary", "77")
        )
    ]


def test_credentials_in_text_are_hidden():
    """Texts."""
    assert _shown(TEXTS) == []
    inside = [
        repr(("no", shape)) for shape in TEXTS
    ]  # as an exception of two arguments says it
    assert _shown(inside) == []
    assert len(TEXTS) > 57


def test_letters_that_are_not_what_they_seem_hide_no_name():
    """Full-width letters, look-alikes, invisible characters."""
    assert _shown(DISGUISED) == []
    assert scrub("no answer from \uff54\uff4f\uff4b\uff45\uff4e:8080").endswith(":8080")
    assert redact({"p\u0430ss\u200bw\uff4frd": "x"}) == {
        "p\u0430ss\u200bw\uff4frd": HIDDEN
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            f"password\n  Short [t=1, input_value='{CANARY}', input_type=str]\nx\n  [t=1, input_value=1]",
            f"password\n  Short [t=1, input_value={HIDDEN}, input_type=str]\nx\n  [t=1, input_value=1]",
        ),
        (
            f"'{CANARY}' is too short\n\nOn instance['password']:\n    '{CANARY}'",
            f"{HIDDEN} is too short\n\nOn instance['password']:\n    {HIDDEN}",
        ),
        (
            f"password: |-\n  {CANARY}\n\n  {CANARY}\nuser: ada",
            f"password: {HIDDEN}\nuser: ada",
        ),
        (
            f"user\tada\npassword\t{CANARY}\tx\nhost\tdb",
            f"user\tada\npassword\t{HIDDEN}\tx\nhost\tdb",
        ),
        (
            f'["password"]=>\n  string(13) "{CANARY}"\n  ["n"]=>\n  int(3)',
            f'["password"]=>\n  {HIDDEN}\n  ["n"]=>\n  int(3)',
        ),
    ],
)
def test_only_the_value_of_a_secret_name_is_hidden_wherever_it_stands(
    text: str, shown: str
) -> None:
    """Below the name, in a block, after a tab or a type, or said again."""
    assert scrub(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "InvalidToken\n\tat com.shop.TokenService.read(Token.java:12)\n\t... 12 more",
        "token\thas expired",
        "name\n  Field required [type=missing, input_value='Ada', input_type=str]",
        "'Ada' is too short\n\nOn instance['name']:\n    'Ada'",
        "text: |\n  a\n  b",
    ],
)
def test_texts_in_the_same_forms_without_a_secret_stay(text: str) -> None:
    assert scrub(text) == text


def test_what_is_a_secret_by_its_looks_is_hidden():
    """Credentials."""
    found = {scrub(f"before {secret} after") for secret in CREDENTIALS}

    assert found == {f"before {HIDDEN} after"}
    assert len(CREDENTIALS) > 38
    assert redact({"n": 4111111111111111, "m": 4711, "b": True}) == {
        "n": HIDDEN,
        "m": 4711,
        "b": True,
    }


def test_ordinary_failures_stay_as_they_are():
    """No false hit."""
    messages = set(ordinary())

    assert {text: scrub(text) for text in messages if scrub(text) != text} == {}
    assert len(messages) > 1_000


@pytest.mark.parametrize(
    "text",
    [
        "order 4111111111111112 is late",
        "author: Ada",
        "2026-11-21 05:49:33",
        "HTTP 503 from host:80",
        "the compass: north",
        "https://shop.example/a?b=c",
    ],
)
def test_ordinary_text_stays(text: str):
    assert scrub(text) == text


@given(st.lists(st.sampled_from(TEXTS + CREDENTIALS + DISGUISED), max_size=4))
def test_scrubbing_twice_is_scrubbing_once(shapes: list[str]):
    once = scrub("\n".join(shape.format(CANARY) for shape in shapes))

    assert scrub(once) == once


def test_a_cut_answer_keeps_the_deep_redaction():
    """JSON that was cut anywhere, or is none."""
    secret = {
        "token": {"of": [{"a": "Zx9-a"}, {"b": ["Zx9-b", "Zx9-c"]}], "c": "Zx9-d"}
    }
    whole = json.dumps(
        {"error": "no", "password": "Zx9-e", "with": secret, "pin": "Zx9-f"}
    )

    for text in (whole, whole.replace('"', "'"), whole.replace("}", ",}")):
        assert [n for n in range(len(text) + 1) if "Zx9" in scrub(text[:n])] == []


def test_a_secrets_copy_under_another_key_is_hidden():
    """And so is one in a text beside it."""
    payload = {
        "token": CANARY,
        "again": CANARY,
        "said": [f"it was {CANARY}!"],
        "n": 123456,
    }

    assert redact(payload, ["n"], secret_values(payload, ["n"])) == {
        "token": HIDDEN,
        "again": HIDDEN,
        "said": [f"it was {HIDDEN}!"],
        "n": HIDDEN,
    }


def test_what_a_process_knows_is_hidden_where_it_reappears():
    """The environment, and the passwords of its URLs; no words, and no paths."""
    environment = {
        "STRIPE_KEY_FILE": "/secrets/stripe",
        "SMTP_PASSWORD": "mail-4711-x",
        "APP_TOKEN": "/var/run/token",
        "PGPASSWORD": "postgres",
        "PIN": "1234",
        "BROKER": "amqp://u:rabbit-0815@mq/v",
    }

    assert secrets_of_environment(environment) == {"mail-4711-x", "rabbit-0815"}


@pytest.mark.parametrize(
    "secret", ["quo\"te's", "line\nbreak", "bäck\\slash", "sp ace&amp", "/p+th=="]
)
@pytest.mark.parametrize(
    "write",
    [
        str,
        repr,
        json.dumps,
        lambda s: quote(s, safe=""),
        quote,
        lambda s: repr({"a": s}).encode().decode(),
    ],
)
def test_a_secret_of_the_payload_is_found_however_it_is_written(
    secret: str, write: Any
):
    assert scrub(f"<{write(secret)}>", {secret}).count(HIDDEN) == 1


@given(st.text(max_size=400), st.sets(st.text(min_size=4, max_size=20), max_size=4))
def test_scrubbing_takes_any_text(text: str, secrets: set[str]):
    assert isinstance(scrub(text, secrets), str)


def test_a_secret_cut_by_a_bound_leaves_no_piece_of_itself():
    secret = "S" + "hibboleth" * 25
    for length in range(7_900, 8_300, 7):
        text = ("password=" + "p" * 300 + " ") * (length // 310)
        failure = describe(
            RuntimeError(text.ljust(length, ".") + secret), "k", secrets={secret}
        )
        assert "ibboleth" not in failure.message


def test_more_secrets_than_can_be_sought_hide_the_text_whole():
    """28,000 texts under one key and a long message took 9.4 s, and the loop with them."""
    payload = {"token": [f"secret number {n}" for n in range(28_000)]}
    secrets = secret_values(payload)

    assert len(secrets) == MAX_SECRETS + 1, "no more of them are collected"
    assert describe(RuntimeError("x" * 15_000), "k", secrets=secrets).message == HIDDEN


def test_what_is_sought_in_a_text_is_bounded():
    """Ways of writing the secrets, times the text."""
    secrets = {f"sécret/number {n}" for n in range(MAX_SECRETS)}

    assert scrub("x " * 20, secrets) == "x " * 20
    assert scrub("x " * 8_000, secrets) == HIDDEN


def test_a_long_secret_is_found_by_its_beginning():
    """A credential whose end was cut off is found, too."""
    secret = "".join(f"{n:03}/" for n in range(100))

    for length in (MAX_SECRETS, 399, 400):
        assert scrub(f"<{secret[:length]}>", {secret}) == f"<{HIDDEN}>"


_HOSTILE = (
    "a", "'", "=", "4 ", "4444 ", "password=", "x-", "a://b:", "a://b:c@d", "a:b@", "token: {",
    "token=[", 'token=\\"', "token=f(", "bearer ", "eyJ", "-----BEGIN PGP", "DETAIL: ", "key (a)=(",
    "<a ", "<a></", "--x ", "name=a ", '"name": "a", "value": ', "mysql ", "AA00", "123456789:",
    "a.b.", "pat.s.SG.", "api key ", "a%3D", "\u043e=", "login ", "Duplicate entry ", "token=a,",
    "token=a;,", "('a', '", "value=name=a", "\nDETAIL: \n[", " ", "\n", "token:  ", "ab ",
    "curl -u ", "key: ", ":token", ":token:{", "token:1", "token: a", 'token: ["A b c', "1.2.3",
    "invalid input syntax for type x: ", "4111-", "\u200b", "password is ", "hook.slack.com/",
    "ACR_", "fw_a_", "-eyJaaa", "-ey", "-sk-", "_sc_aaaa",
)  # fmt: skip


def _is_linear(piece: str) -> bool:
    """Whether four times the text takes about four times as long; 16 times were its square."""
    short, long = (piece * (size // len(piece)) for size in (4_096, 16_384))
    return any(_seconds(long) < 9 * _seconds(short) for _ in range(5))


def _seconds(text: str) -> float:
    """Processor time, which others on the machine hardly change."""
    began = time.process_time()
    scrub(text)
    return time.process_time() - began


def test_the_time_is_linear_in_the_text():
    """Whatever it is made of."""
    assert [piece for piece in _HOSTILE if not _is_linear(piece)] == []


_RUN = re.compile(r"(?P<kind>\[[^\]]+\]|\\.|\.)(?:(?P<unbounded>[*+]|\{\d+,\})[+?]?)?")
"""A class of characters in the source of a pattern, and its repetition."""
_OPTIONAL = re.compile(r"(?:\)|\(\?:[^()]*\)\?\+?)*")
_ALPHANUMERIC = frozenset(string.ascii_letters + string.digits)


def _rereads(form: str) -> list[str]:
    """Return the unbounded repetitions of a form in which the form itself can begin again.

    A form begins with its literal prefix, after a sign. If such a repetition is not the end of
    the form, it may be read to its end in vain at each of these beginnings.
    """
    prefix = re.match(r"(?:\\.|[\w-])*", form.strip())[0].replace("\\", "")
    reread: list[str] = []
    for run in filter(lambda run: run["unbounded"], _RUN.finditer(form)):
        held = {
            c for c in map(chr, range(128)) if re.fullmatch(run["kind"], c, re.ASCII)
        }
        is_last = _OPTIONAL.fullmatch(form, run.end(), len(form.rstrip()))
        if not is_last and not held <= _ALPHANUMERIC and held.issuperset(prefix):
            reread.append(run[0])

    return reread


def test_no_form_reads_a_text_again_at_each_place_where_it_may_begin():
    """16 KB of `-eyJaaa` took 0.5 s, and four times as much took 8 s."""
    forms = credentials._KNOWN_FORMS.split(" | ")  # as they are written

    assert {form for form in forms if _rereads(form)} == set()
    for form in (r"eyJ[\w-]{8,}+(?:\.[\w-]*+){1,4}", r"sk-(?=[\w-]*\d)\w{9}"):
        assert _rereads(form)


def test_a_signed_token_is_found_behind_others_that_are_none():
    """A form that reads on swallows what follows."""
    for token in (
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.",
        "eyAiYWxnIjoiSFMyNTYi.eyAic3ViIjoxfQ.x",
    ):
        assert scrub(f"a -ey_and_more_of_it-{token}") == f"a -{HIDDEN}"
        assert scrub(f"a ey-{token} b") == f"a {HIDDEN} b"

    assert (
        scrub("a cursor eyJpZCI6IDE3LCAiYXQiOiA0fQ")
        == "a cursor eyJpZCI6IDE3LCAiYXQiOiA0fQ"
    )


@pytest.mark.parametrize("size", [100_000, 4_000_000])
def test_a_text_of_any_size_takes_no_time(size: int):
    for piece in _HOSTILE:
        began = time.process_time()
        describe(RuntimeError(piece * (size // len(piece))), "k")
        assert time.process_time() - began < 0.5, piece


class Patient(BaseModel):
    number: int
    diagnosis: SecretStr


class Order(BaseModel):
    patients: list[Patient]


def test_the_secret_fields_of_a_model_are_declared_by_it_at_any_depth():
    jobs = Handlers()

    @jobs.handle("x", secret=["iq"])
    def x(payload: Order) -> None: ...

    handler = jobs.get("x")
    assert isinstance(handler, Handler)
    assert handler.secret == {"diagnosis", "iq"}


def _raised(act: Any) -> BaseException:
    try:
        act()
    except BaseException as error:
        return error
    raise AssertionError


def test_no_value_comes_out_of_a_validator():
    error = _raised(
        lambda: Patient.model_validate_json(
            json.dumps({"number": CANARY, "diagnosis": [CANARY]})
        )
    )

    failure = describe(error, "k")

    assert isinstance(error, ValidationError)
    assert CANARY in str(error)
    assert CANARY not in str(failure)
    assert failure.message.startswith("number: Input should be a valid integer")


STATEMENTS = [
    "insert into t (email) values (%s), (%s)",
    "select %s::int where %s <> ''",
    "select cast(%s as timestamptz), %s",
    "select jsonb(%s::text), %s",
    "insert into t (n) values (%s::text::int), (%s::text::int)",
    "select %s::uuid, %s",
    "insert into t (short) values (%s), (%s)",
    "insert into t (email, positive) values (%s, -1), (%s, 1)",
]


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("through", ["psycopg", "sqlalchemy"])
def test_no_value_comes_out_of_a_driver(
    database: Database, statement: Any, through: str
):
    database.conn.execute(
        "create table t (email text unique, n int, short varchar(3),"
        " positive int check (positive > 0))"
    )

    def act() -> None:
        if through == "psycopg":
            database.conn.execute(statement, (CANARY, CANARY))
            return
        from sqlalchemy import create_engine, text

        engine = create_engine(
            "postgresql+psycopg://", creator=lambda: psycopg.connect(database.url)
        )
        try:
            with engine.connect() as conn:
                values = {"a": CANARY, "b": CANARY}
                conn.execute(
                    text(
                        statement.replace("%s", "CAST(:a AS text)", 1).replace(
                            "%s", "CAST(:b AS text)"
                        )
                    ),
                    values,
                )
        finally:
            engine.dispose()

    error = _raised(act)
    failure = describe(error, "k")

    assert failure.detail["sqlstate"][:2] in {"22", "23"}
    assert CANARY not in json.dumps(failure.record())


@pytest.mark.parametrize(
    ("statement", "sqlstate"),
    [
        ("select %s::int", "22P02"),
        ("select %s::date", "22007"),
        ("insert into u values (%s), (%s)", "23505"),
    ],
)
def test_nor_out_of_psycopg2(database: Database, statement: str, sqlstate: str):
    """Its errors say pgcode where psycopg's say sqlstate."""
    database.conn.execute("create table u (email text unique)")
    values = (CANARY,) * statement.count("%s")
    with (
        contextlib.closing(psycopg2.connect(database.url)) as conn,
        conn.cursor() as cursor,
    ):
        error = _raised(lambda: cursor.execute(statement, values))

    failure = describe(error, "k")

    assert CANARY in str(error)
    assert failure.detail["sqlstate"] == sqlstate
    assert CANARY not in json.dumps(failure.record())


def test_locals_and_arguments_are_not_kept():
    def act(password: str = CANARY) -> None:
        shadow = password
        raise RuntimeError("no luck")

    assert CANARY not in json.dumps(describe(_raised(act), "k").record())


def test_causes_notes_and_members_of_groups_are_scrubbed():
    def act() -> None:
        try:
            raise KeyError(f"password={CANARY}")
        except KeyError as error:
            inner = ValueError(f"Bearer {CANARY}")
            inner.add_note(CANARY)
            raise ExceptionGroup(
                f"token={CANARY}", [inner, RuntimeError("plain " + CANARY)]
            ) from error

    failure = describe(_raised(act), "k", secrets={CANARY})

    assert [c["error_class"] for c in failure.detail["causes"]] == [
        "KeyError",
        "ValueError",
        "RuntimeError",
    ]
    assert CANARY not in json.dumps(failure.record())


# ---------------------------------------------------------------------- fingerprints


def _charge(n: int, chance: random.Random) -> None:
    some = uuid.UUID(int=chance.getrandbits(128))
    match n % 5:
        case 0:
            raise ValueError(
                f"invoice {chance.randrange(10**9)} of customer {some} was not found"
            )
        case 1:
            raise ConnectionError(
                f"no answer from 10.0.{n % 250}.{n % 99}:{chance.randrange(65536)}"
                f" in {chance.random():.3f} s"
            )
        case 2:
            raise KeyError(f"cust_{chance.randrange(10**6)}")
        case 3:
            raise RuntimeError(
                f"0x{chance.getrandbits(64):x} at /data/{some}/{n}.csv:"
                f" bad row {n} of 'user{n}@x{n}.example'"
            )
    raise LookupError(
        f"https://api.example/v1/users/{n}?page={n} said user-{n}@example.com is {some.hex}"
    )


def test_ten_thousand_errors_are_five_groups():
    chance = random.Random(7)
    errors = [
        describe(_raised(lambda n=n: _charge(n, chance)), "invoice.charge")
        for n in range(10_000)
    ]

    groups = {e.fingerprint: e for e in errors}

    assert len(groups) == 5, [normalise(g.message) for g in groups.values()]


def test_kind_class_message_and_place_tell_groups_apart():
    def here() -> None:
        raise ValueError("x")

    def there() -> None:
        raise ValueError("x")

    def other() -> None:
        raise KeyError("x")

    prints = [
        describe(_raised(act), kind).fingerprint
        for act, kind in ((here, "a"), (here, "b"), (there, "a"), (other, "a"))
    ]
    assert len(set(prints)) == 4
    assert describe(_raised(here), "a").fingerprint == prints[0]


def test_a_fingerprint_does_not_move_with_the_lines():
    def at(line: int) -> str:
        space: dict[str, Any] = {"__name__": "app"}
        exec(
            compile(
                "\n" * line + "def f():\n  raise ValueError('x')",
                "/app/jobs.py",
                "exec",
            ),
            space,
        )
        return describe(_raised(space["f"]), "k").fingerprint

    assert at(1) == at(500)
