"""Settings: a bad value is one line with the variable, what it holds and what is allowed."""

import os
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive.errors import SettingsError
from redrive.settings import PREFIX, Settings, load, refuse_unknown

RANGES = {
    "REDRIVE_SLOTS": (1, 4096),
    "REDRIVE_RUNNERS": (1, 64),
    "REDRIVE_HTTP_PORT": (0, 65535),
    "REDRIVE_HEARTBEAT_TTL": (1, 3600),
    "REDRIVE_DRAIN_TIMEOUT": (0, 86400),
    "REDRIVE_RUNNER_MEMORY_MIB": (0, None),
}
REAL = {"REDRIVE_HEARTBEAT_TTL", "REDRIVE_DRAIN_TIMEOUT"}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(PREFIX):
            monkeypatch.delenv(name)


def refusal(name: str, value: str) -> str:
    """What is said of a value."""
    os.environ[name] = value
    try:
        with pytest.raises(SettingsError) as refused:
            load()
    finally:
        del os.environ[name]
    return str(refused.value)


@pytest.mark.parametrize("name", RANGES)
@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_number_is_taken_in_its_range_and_refused_outside_of_it(name: str, data: Any):
    low, high = RANGES[name]
    value = data.draw(
        st.integers(-(10**6), 10**6)
        | st.sampled_from([low, high or low, low - 1, (high or low) + 1])
    )
    if low <= value <= (high if high is not None else value):
        os.environ[name] = str(value)
        try:
            assert getattr(load(), name.removeprefix(PREFIX).lower()) == value
        finally:
            del os.environ[name]
        return
    said = refusal(name, str(value))

    assert said.startswith(f"{name} is '{value}'; it must be a")
    assert str(low) in said
    assert "\n" not in said


WORDS = [
    "x",
    "1e9999",
    "nan",
    "inf",
    "-inf",
    "0x10",
    "1,5",
    "١٢",
    "true",
    "None",
    " ",
    "1;2",
]


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("value", WORDS)
def test_what_is_no_number_is_refused_in_one_line(name: str, value: str):
    if value == " " or (value == "inf" and name not in REAL):
        assert "\n" not in refusal(name, value)
        return
    if value == "١٢":
        return  # digits of another script are digits
    said = refusal(name, value)

    assert said.startswith(name)
    assert "\n" not in said


@given(text=st.text(string.printable, min_size=1, max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_choice_is_one_of_its_words(text: str):
    if text in {"debug", "info", "warning", "error"}:
        return
    said = refusal("REDRIVE_LOG_LEVEL", text)

    assert said.startswith("REDRIVE_LOG_LEVEL is")
    assert "debug or info or warning or error" in said


@pytest.mark.parametrize(
    "url",
    [
        "",
        "  ",
        "nonsense",
        "http://x/y",
        "postgresql://u:p4ss@h/d?bogus=1",
        "host=h bogus=1",
    ],
)
def test_a_url_that_is_none_is_refused_without_repeating_it(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("REDRIVE_DATABASE_URL", url)
    with pytest.raises(SettingsError) as refused:
        load().address().read()

    assert str(refused.value).startswith("REDRIVE_DATABASE_URL")
    assert "p4ss" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_url_can_be_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    secret = tmp_path / "url"
    secret.write_text("postgresql://u:p@h/d\n")
    monkeypatch.setenv("REDRIVE_DATABASE_URL_FILE", str(secret))

    assert load().address().read() == "postgresql://u:p@h/d"


@pytest.mark.parametrize(
    "content", [None, b"\xff\xfe\x00", b""], ids=["missing", "binary", "empty"]
)
def test_a_file_that_cannot_be_read_is_named(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    secret = tmp_path / "url"
    if content is not None:
        secret.write_bytes(content)
    monkeypatch.setenv("REDRIVE_DATABASE_URL_FILE", str(secret))
    with pytest.raises(SettingsError) as refused:
        load().address().read()

    assert "REDRIVE_DATABASE_URL" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "names"), [("a", ("a",)), (" a , b ,", ("a", "b")), ("a,a", ("a", "a"))]
)
def test_queues_are_a_list(
    text: str, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("REDRIVE_QUEUES", text)

    assert load().queue_names() == names


@pytest.mark.parametrize("text", ["1a", "a;b", "a b", "é", "a" * 64, ",", " , "])
def test_a_queue_that_is_no_name_is_refused(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REDRIVE_QUEUES", text)
    with pytest.raises(SettingsError, match="REDRIVE_QUEUES"):
        load().queue_names()


OF_OPTIONS = ("REDRIVE_REDRIVE_REASON", "REDRIVE_REDRIVE_KIND", "REDRIVE_PURGE_KIND")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("REDRIVE_SLOT", "REDRIVE_SLOTS"),
        ("REDRIVE_DATABASE_URI", "REDRIVE_DATABASE_URL"),
        (
            "REDRIVE_HTP_PORT",
            "REDRIVE_HTTP_PORT",
        ),  # the shape of a service link, not its value
        ("REDRIVE_REDRIVE_REASN", "REDRIVE_REDRIVE_REASON"),
        ("REDRIVE_KIND", "REDRIVE_PURGE_KIND or REDRIVE_REDRIVE_KIND"),
        (
            "redrive_redrive_reason",
            "REDRIVE_REDRIVE_REASON",
        ),  # options keep to their case
        ("REDRIVE_QQQ", None),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_nearest(
    name: str, meant: str | None, monkeypatch: pytest.MonkeyPatch
):
    """It was ignored, or a warning among others."""
    monkeypatch.setenv(name, "s3cret")
    with pytest.raises(SettingsError) as refused:
        refuse_unknown(lambda: OF_OPTIONS)

    said = str(refused.value)
    assert said.startswith(f"{name} is not a setting")
    assert said.endswith(f"did you mean {meant}?") == (meant is not None)
    assert "s3cret" not in said


@pytest.mark.parametrize("name", OF_OPTIONS)
@pytest.mark.parametrize("value", ["", " "])
def test_an_option_that_is_empty_is_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
):
    """A shell variable that is not set would narrow nothing, in silence."""
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=f"{name} is empty"):
        refuse_unknown(lambda: OF_OPTIONS)


def test_what_kubernetes_says_of_services_is_no_setting(
    monkeypatch: pytest.MonkeyPatch,
):
    """EnableServiceLinks, which is on by default, in the pods of others' charts."""
    links = {
        "REDRIVE_PORT": "tcp://10.0.0.1:9808",
        "REDRIVE_SERVICE_HOST": "10.0.0.1",
        "REDRIVE_SERVICE_PORT": "9808",
        "REDRIVE_EXPORTER_PORT": "tcp://10.0.0.1:9808",
        "REDRIVE_EXPORTER_PORT_9808_TCP": "tcp://10.0.0.1:9808",
        "REDRIVE_EXPORTER_PORT_9808_TCP_ADDR": "10.0.0.1",
        "REDRIVE_EXPORTER_SERVICE_PORT_METRICS": "9808",
        "REDRIVE_REDRIVE_KIND": "mail",
        "redrive_slots": "3",  # as load() takes it
    }
    for name, value in links.items():
        monkeypatch.setenv(name, value)

    refuse_unknown(lambda: OF_OPTIONS)


def test_the_address_of_a_service_is_not_a_port(monkeypatch: pytest.MonkeyPatch):
    """A release called redrive broke the other pods of its namespace."""
    monkeypatch.setenv("REDRIVE_CONSOLE_PORT", "tcp://10.0.0.1:9809")
    monkeypatch.setenv("REDRIVE_HTTP_PORT", "tcp://10.0.0.2:9808")

    assert load().console_port == Settings.model_fields["console_port"].default
    assert load().http_port == Settings.model_fields["http_port"].default


def test_every_setting_says_what_it_is():
    assert all(
        len(field.description or "") > 10 for field in Settings.model_fields.values()
    )


def test_yes_or_no_is_said_in_words():
    assert refusal("REDRIVE_DATABASE_METRICS", "maybe") == (
        "REDRIVE_DATABASE_METRICS is 'maybe'; it must be true or false."
        " True: workers export the database's figures, like the exporter."
    )
