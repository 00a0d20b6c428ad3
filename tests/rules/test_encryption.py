"""Envelopes open where they were put and nowhere else; a broken one says so and no more."""

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import encryption
from redrive.encryption import (
    MARK,
    SEALED,
    Keyring,
    Undecryptable,
    Whose,
    key_of,
    open_payload,
    read_keys,
)
from redrive.errors import SettingsError

KEY, OTHER = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
RING = Keyring({"k1": b"\1" * 32, "k2": b"\2" * 32})
SECRET = "Zx9-canary-77"
CHARGE = Whose("charge", "q", "acme", "ik", "ok")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(plain=st.binary(max_size=300), where=st.lists(st.text(), max_size=4))
def test_what_is_sealed_opens_with_any_keyring_that_has_its_key(
    plain: bytes, where: list[str]
):
    envelope = json.loads(json.dumps(RING.seal(plain, *where)))

    assert RING.open(envelope, *where) == plain
    assert Keyring({"k3": b"\3" * 32, "k1": b"\1" * 32}).open(envelope, *where) == plain
    assert key_of(envelope) == "k1"
    with pytest.raises(Undecryptable):
        RING.open(envelope, *where, "")


@settings(max_examples=40)
@given(message=st.text(), detail=st.dictionaries(st.text(), JSON))
def test_a_failure_keeps_only_in_clear_where_it_happened(
    message: str, detail: dict[str, Any]
):
    known = {"environment": "production", "traceparent": "00-1"}
    record = {
        "error_class": "E",
        "category": "bug",
        "message": message,
        "detail": {**detail, **known},
    }
    sealed = RING.seal_failure(record, 7, 3)

    assert set(sealed["detail"]) - {MARK} <= set(encryption.IN_CLEAR)
    assert sealed["detail"]["environment"] == "production"
    assert sealed["message"] == "[encrypted]"
    opened = RING.open_record(sealed["detail"], "failure", 7, 3)
    assert opened["message"] == message
    assert opened["detail"] == {
        k: v for k, v in detail.items() if k not in encryption.IN_CLEAR
    }


def _sealed() -> tuple[dict[str, Any], dict[str, str]]:
    envelope, salt = RING.seal_payload(json.dumps({"card": SECRET}).encode(), CHARGE)
    return envelope, salt


def _flip(envelope: dict[str, Any], part: str, bit: int) -> None:
    raw = bytearray(base64.b64decode(envelope[MARK][part]))
    raw[bit // 8 % len(raw)] ^= 1 << bit % 8
    envelope[MARK][part] = base64.b64encode(raw).decode()


BROKEN: dict[str, tuple[Any, str]] = {
    "an unknown key": (
        lambda e: e[MARK].update(k="k9"),
        "encrypted with key k9, which is not configured here",
    ),
    "another key": (
        lambda e: e[MARK].update(k="k2"),
        "with key k2, but it was changed",
    ),
    "a key that is no text": (
        lambda e: e[MARK].update(k=[SECRET]),
        "in an unknown form",
    ),
    "a key that is no id": (
        lambda e: e[MARK].update(k=SECRET * 9),
        "in an unknown form",
    ),
    "no key": (lambda e: e[MARK].pop("k"), "in an unknown form"),
    "no nonce": (lambda e: e[MARK].pop("n"), "changed, cut short or moved"),
    "an empty nonce": (lambda e: e[MARK].update(n=""), "changed, cut short or moved"),
    "no ciphertext": (lambda e: e[MARK].pop("c"), "changed, cut short or moved"),
    "a ciphertext cut short": (
        lambda e: e[MARK].update(c=e[MARK]["c"][:-4]),
        "changed, cut short or moved",
    ),
    "an empty ciphertext": (
        lambda e: e[MARK].update(c=""),
        "changed, cut short or moved",
    ),
    "a ciphertext that is a number": (
        lambda e: e[MARK].update(c=7),
        "changed, cut short or moved",
    ),
    "a ciphertext that is no base64": (
        lambda e: e[MARK].update(c="é!"),
        "changed, cut short or moved",
    ),
    "a list for an envelope": (lambda e: e.update({MARK: [1]}), "in an unknown form"),
    "a text for an envelope": (
        lambda e: e.update({MARK: SECRET}),
        "in an unknown form",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_envelope_is_refused_and_not_quoted(name: str):
    spoil, said = BROKEN[name]
    envelope, headers = _sealed()
    spoil(envelope)

    with pytest.raises(Undecryptable) as refused:
        open_payload(RING, envelope, CHARGE, headers)
    assert said in str(refused.value)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("part", ["n", "c"])
def test_no_bit_can_be_flipped(part: str):
    envelope, headers = _sealed()

    for bit in range(8 * len(base64.b64decode(envelope[MARK][part]))):
        spoilt = copy.deepcopy(envelope)
        _flip(spoilt, part, bit)
        with pytest.raises(Undecryptable):
            open_payload(RING, spoilt, CHARGE, headers)


def test_a_payload_opens_in_its_own_job_only():
    envelope, headers = _sealed()
    _, others = _sealed()

    assert (
        open_payload(RING, envelope, CHARGE, headers)
        == json.dumps({"card": SECRET}).encode()
    )
    for whose, found in (
        (CHARGE, others),
        (CHARGE._replace(kind="refund"), headers),
        (CHARGE, {}),
        (CHARGE, {MARK: None}),
    ):
        with pytest.raises(Undecryptable, match="changed, cut short or moved"):
            open_payload(RING, envelope, whose, found)
    with pytest.raises(Undecryptable, match="not configured here"):
        open_payload(None, envelope, CHARGE, headers)
    for what in ("failure", "side effect"):
        with pytest.raises(Undecryptable):
            RING.open(envelope, what, headers[MARK])


@pytest.mark.parametrize("name", Whose._fields)
@pytest.mark.parametrize("other", ["another", None])
def test_a_payload_that_moved_is_refused_header_and_all(name: str, other: str | None):
    """With its header it could be given to another tenant, queue or key, and ran."""
    envelope, headers = _sealed()

    with pytest.raises(Undecryptable, match="moved"):
        open_payload(RING, envelope, CHARGE._replace(**{name: other}), headers)


def test_a_payload_that_is_bound_to_less_is_refused():
    """Whoever has the key could have sealed it; it names no job."""
    for salt in ("salt", "2.1.random", "2.1.random.digest", ""):
        unbound = RING.seal(b"{}", "payload", "charge", salt)
        with pytest.raises(Undecryptable, match="for another job: it was moved"):
            open_payload(RING, unbound, CHARGE, {MARK: salt})


RECORD = {"message": SECRET, "detail": {}}


def test_a_record_that_moved_is_refused():
    """A failure or a side effect opened in any delivery of its job, and so as another's."""
    envelope = RING.seal_record(RECORD, "failure", 7, 3)

    assert RING.open_record(envelope, "failure", 7, 3) == RECORD
    for where in (("failure", 7, 4), ("failure", 8, 3), ("side effect", 7, 3)):
        with pytest.raises(Undecryptable, match="moved") as refused:
            RING.open_record(envelope, *where)
        assert SECRET not in str(refused.value)
    with pytest.raises(Undecryptable, match="moved"):
        RING.open_record({MARK: envelope[MARK] | {"d": 4}}, "failure", 7, 4)


def test_a_record_of_no_delivery_is_refused():
    """It could be shown as another's."""
    unbound = RING.seal(json.dumps(RECORD).encode(), "failure", "7")
    with pytest.raises(Undecryptable, match="for another delivery: it was moved"):
        RING.open_record(unbound, "failure", 7, 3)


def test_a_record_that_is_sealed_again_keeps_what_is_beside_it():
    envelope = RING.seal_record(RECORD, "failure", 7, 3)
    again = RING.seal_again({**envelope, "pod": "p1"}, "failure", 7, 3)

    assert again["pod"] == "p1"
    assert RING.open_record(again, "failure", 7, 3) == RECORD


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o777, 0o666])
def test_a_keyring_that_others_may_read_or_change_is_refused(
    tmp_path, monkeypatch, mode: int
):
    """Of a mounted Secret, 0440 and root's, the group may read; all else is a mistake."""
    path = tmp_path / "keys"
    path.write_text(f"k1 {KEY}")
    (tmp_path / "mounted").symlink_to(path)
    monkeypatch.delenv(encryption.KEYS, raising=False)
    monkeypatch.setenv(encryption.KEYS_FILE, str(tmp_path / "mounted"))
    encryption.configured.cache_clear()
    path.chmod(mode)
    with pytest.raises(
        SettingsError, match=f"its mode {mode:04o} lets others .* chmod 440"
    ) as said:
        encryption.configured()
    assert KEY not in str(said.value)
    for fine in (0o440, 0o400, 0o600, 0o640):
        path.chmod(fine)
        assert encryption.configured()
        encryption.configured.cache_clear()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        SEALED,
        SEALED + '"k": 1e999}}',
        SEALED * 5_000,
        "[]",
        '{"$redrive": null}',
    ],
)
def test_a_text_that_is_no_envelope_is_refused_like_one(text: str):
    with pytest.raises(Undecryptable, match="in an unknown form"):
        open_payload(RING, text, CHARGE, {})


def test_a_keyring_is_read_in_order():
    text = f"# ours\n\n  new {OTHER}  \nold\t{KEY}\n"

    assert list(read_keys(text, "X").items()) == [
        ("new", b"\2" * 32),
        ("old", b"\1" * 32),
    ]


REFUSED = {
    "": "it holds no key",
    "# only this\n": "it holds no key",
    KEY: "line 1: write an id and a key",
    f"k1 {KEY} more": "line 1: write an id and a key",
    f"ok {KEY}\n{OTHER} k1": "line 2: the id must be 1 to 63 of",
    f"k1 {KEY}\nk1 {OTHER}": "line 2: this id is taken",
    f"k1 {KEY[:-4]}": "line 1: the key has 30 bytes, not 32; make one with: openssl rand -base64",
    f"k1 {KEY[:-1]}": "line 1: the key is not valid base64",
    f"k1 {KEY[:-2]}é=": "line 1: the key is not valid base64",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_keyring_that_is_no_good_says_where_and_never_the_key(text: str):
    with pytest.raises(SettingsError) as refused:
        read_keys(text, "REDRIVE_ENCRYPTION_KEYS")

    said = str(refused.value)
    assert said.startswith("REDRIVE_ENCRYPTION_KEYS; ")
    assert REFUSED[text] in said
    assert not any(part in said for part in (KEY[:20], OTHER[:20]))


def test_where_a_keyring_is(tmp_path, monkeypatch):
    path = tmp_path / "keys"

    def read() -> Keyring | None:
        encryption.configured.cache_clear()
        try:
            return encryption.configured()
        finally:
            encryption.configured.cache_clear()

    monkeypatch.delenv(encryption.KEYS, raising=False)
    monkeypatch.delenv(encryption.KEYS_FILE, raising=False)
    assert read() is None
    monkeypatch.setenv(encryption.KEYS_FILE, str(path))
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        read()
    path.touch(0o600)
    path.write_text(f"filed {KEY}")
    assert (read() or RING).ids == ("filed",)
    monkeypatch.setenv(encryption.KEYS, f"given {KEY}")
    assert (read() or RING).ids == ("given",)
