"""What is hidden, and that a thousand failures read as their few causes."""

import json
import random
import uuid
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr, ValidationError

from redrive import Handlers
from redrive.handlers import Handler
from redrive.rules.failure import describe, normalise
from redrive.rules.redact import HIDDEN, redact, scrub, secret_values
from tests.postgres import Database

CANARY = "Zx9-canary-77"


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "Passwd",
        "db_password",
        "passphrase",
        "passcode",
        "secret",
        "client_secret",
        "token",
        "access_token",
        "refreshToken",
        "authorization",
        "Authorisation",
        "api_key",
        "apiKey",
        "x-api-key",
        "private_key",
        "credentials",
        "card_number",
        "cardNo",
        "credit_card",
        "card",
        "pan",
        "cvv",
        "cvc",
        "ssn",
        "iban",
        "pin",
        "cookie",
        "session_id",
        "password_hash",
        "passwords",
        "set-cookie",
    ],
)
def test_a_key_that_sounds_secret_hides_its_value(key: str):
    assert redact({key: CANARY, "n": [{key: {"deep": CANARY}}]}) == {
        key: HIDDEN,
        "n": [{key: HIDDEN}],
    }
    assert CANARY in secret_values({key: CANARY})


@pytest.mark.parametrize(
    "key",
    [
        "invoice",
        "name",
        "pinned",
        "span",
        "company",
        "session_count",
        "discard",
        "cardinality",
        "compass",
        "passenger",
        "postcard_text",
        "author",
    ],
)
def test_other_keys_do_not(key: str):
    assert redact({key: "x"}) == {key: "x"}


def test_declared_keys_are_secret_at_any_depth():
    assert redact({"a": [{"patient": CANARY}]}, {"patient"}) == {"a": [{"patient": HIDDEN}]}
    assert secret_values(
        {"a": {"patient": ["1234", {"x": CANARY}, 98765, True, None, "abc"]}}, {"patient"}
    ) == {
        "1234",
        CANARY,
        "98765",
    }


def test_text_in_a_payload_is_looked_through_as_well():
    assert CANARY not in json.dumps(
        redact({"url": f"amqp://u:{CANARY}@h/v", "log": [f"Authorization: Bearer {CANARY}"]})
    )


TEXTS = [
    "postgresql://user:{}@db.example/app",
    "redis://:{}@cache/0",
    "Authorization: Bearer {}",
    "authorization=Basic {}",
    "{{'password': '{}'}}",
    '{{"api_key": "{}"}}',
    "password={}",
    "token: {} was refused",
    "client_secret={}&x=1",
    "GET /x?access_token={}&y=1",
    "DB_PASSWORD={}",
    "X-Api-Key: {}",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n{}",
    'passphrase = "{}"',
    "cvc='{}'",
    "'Set-Cookie': 'sid={}; Path=/'",
    "Cookie: a={}; b=2",
    "duplicate key value violates unique constraint\nDETAIL:  Key (email)=({}) already exists.",
    '{{"password": "a\\"b {} c"}}',
    '{{"tokens": ["abc", "{}"]}}',
    '{{"said": "{{\\"password\\": \\"a b {}\\"}}"}}',
    '{{"password": "cut off {}',
    "x\n[SQL: insert into t values ('{}')]",
    "x\n[parameters: {{'email': '{}'}}]",
]


@pytest.mark.parametrize("text", TEXTS)
def test_credentials_in_text_are_hidden(text: str):
    found = scrub(text.format(CANARY))

    assert CANARY not in found
    assert "77" not in found


@pytest.mark.parametrize(
    "secret",
    [
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "sk_live_4eC39HqLyjWDarjtT1",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrstuvwx",
        "xoxb-12345-abcdefgh",
        "4111 1111 1111 1111",
        "4111111111111111",
        "5500-0000-0000-0004",
    ],
)
def test_what_is_a_secret_by_its_looks_is_hidden(secret: str):
    assert scrub(f"before {secret} after") == f"before {HIDDEN} after"


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
def test_a_secret_of_the_payload_is_found_however_it_is_written(secret: str, write: Any):
    assert scrub(f"<{write(secret)}>", {secret}).count(HIDDEN) == 1


@given(st.text(max_size=400), st.sets(st.text(min_size=4, max_size=20), max_size=4))
def test_scrubbing_takes_any_text(text: str, secrets: set[str]):
    assert isinstance(scrub(text, secrets), str)


def test_a_secret_cut_by_a_bound_leaves_no_piece_of_itself():
    secret = "S" + "hibboleth" * 25
    for length in range(7_900, 8_300, 7):
        text = ("password=" + "p" * 300 + " ") * (length // 310)
        failure = describe(RuntimeError(text.ljust(length, ".") + secret), "k", secrets={secret})
        assert "ibboleth" not in failure.message


@pytest.mark.parametrize("size", [100_000, 4_000_000])
def test_a_text_of_any_size_takes_no_time(size: int):
    import time

    for text in (
        "a" * size,
        "'" * size,
        "=" * size,
        "4 " * (size // 2),
        "password=" * (size // 9),
        "x-" * (size // 2),
    ):
        began = time.monotonic()
        describe(RuntimeError(text), "k")
        assert time.monotonic() - began < 2


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
        lambda: Patient.model_validate_json(json.dumps({"number": CANARY, "diagnosis": [CANARY]}))
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
def test_no_value_comes_out_of_a_driver(database: Database, statement: Any, through: str):
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
            raise ValueError(f"invoice {chance.randrange(10**9)} of customer {some} was not found")
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
        describe(_raised(lambda n=n: _charge(n, chance)), "invoice.charge") for n in range(10_000)
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
            compile("\n" * line + "def f():\n  raise ValueError('x')", "/app/jobs.py", "exec"),
            space,
        )
        return describe(_raised(space["f"]), "k").fingerprint

    assert at(1) == at(500)
