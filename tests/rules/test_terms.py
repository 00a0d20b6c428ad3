"""Terms of a campaign: read from texts, or refused with a rule."""

from datetime import UTC, datetime, timedelta

import pytest

from redrive.dead_letters.campaigns.pace import ABORT_SHARE, CANARIES, MANY
from redrive.dead_letters.campaigns.terms import BadTerm, Terms, usual_canaries

NOW = datetime(2026, 3, 1, 14, tzinfo=UTC)


def test_empty_texts_give_the_defaults() -> None:
    given = {"rate": "", "canaries": " ", "why": "other fields are ignored"}

    assert Terms.read({}, NOW) == Terms(None, CANARIES, ABORT_SHARE)
    assert Terms.read(given, NOW, canaries=0) == Terms(canaries=0)


def test_all_terms_are_read() -> None:
    given = {
        "rate": " 2.5 ",
        "canaries": "0",
        "abort-share": "1",
        "not-before": "2h",
        "when-breaker": "smtp:closed, bank:half_open",
        "when-version": ">=1.4",
    }

    breakers = {"smtp": "closed", "bank": "half_open"}
    start = NOW + timedelta(hours=2)
    assert Terms.read(given, NOW) == Terms(2.5, 0, 1.0, start, breakers, ">=1.4")


def test_a_start_can_be_an_instant() -> None:
    terms = Terms.read({"not-before": "2026-03-01T22:00Z"}, NOW)

    assert terms.not_before == datetime(2026, 3, 1, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("rate", "0", "it must be jobs per second, 0.001 or more"),
        ("rate", "nan", "it must be jobs per second, 0.001 or more"),
        ("rate", "inf", "it must be jobs per second, 0.001 or more"),
        ("rate", "fast", "it must be jobs per second, 0.001 or more"),
        ("canaries", "-1", "it must be a whole number, 0 to 999999"),
        ("canaries", "1000000", "it must be a whole number, 0 to 999999"),
        ("canaries", "2.5", "it must be a whole number, 0 to 999999"),
        ("abort-share", "0", "it must be above 0, and at most 1"),
        ("abort-share", "1.1", "it must be above 0, and at most 1"),
        ("not-before", "22:00", "write 2026-03-01T22:00Z, or 2h"),
        ("not-before", "9999999999d", "write 2026-03-01T22:00Z, or 2h"),
        ("when-breaker", "smtp", "write smtp:closed (closed, half_open, open)"),
        ("when-breaker", ":open", "write smtp:closed (closed, half_open, open)"),
        ("when-breaker", "a:open,b:x", "write smtp:closed (closed, half_open, open)"),
        ("when-version", "newest", "write >=1.4 or ==1.4.*"),
    ],
)
def test_a_bad_term_is_refused_with_its_name_and_rule(
    name: str, text: str, rule: str
) -> None:
    with pytest.raises(BadTerm) as refused:
        Terms.read({name: text}, NOW)

    assert str(refused.value).startswith(f"{name} is {text!r}; {rule}")


def test_few_or_named_dead_letters_have_no_canaries() -> None:
    assert usual_canaries(MANY - 1, are_named=False) == 0
    assert usual_canaries(MANY, are_named=False) == CANARIES
    assert usual_canaries(MANY, are_named=True) == 0


def test_the_risk_counts_no_more_than_there_are() -> None:
    text = Terms(canaries=3).risk(2)

    assert text.startswith("2 go first; if more than 10% of any ten die again")
    assert text.endswith("it stops after at most 2")


def test_without_canaries_the_risk_is_all_of_them() -> None:
    text = Terms(canaries=0).risk(12_000)

    assert text == "none go first, so all 12,000 may die again before it stops"
