"""Credentials of today's providers, made from their forms: what is written where, and survives."""

import random
import re
import string
from pathlib import Path

import pytest

from redrive.rules.payloads.redact import scrub

CLASSES = {
    "w": string.ascii_letters + string.digits,
    "h": "0123456789abcdef",
    "U": string.ascii_uppercase + "234567",
    "l": string.ascii_lowercase + string.digits,
    "d": "123456789",
    "b": string.ascii_letters + string.digits + "+/",
}
"""Letter in the file -> the characters that it stands for; <w40> is forty of them."""

PLACE = re.compile(r"<([whUldb])(\d+)>|<u>")
TAIL = 8
"""If the end of a secret is legible, the secret is."""


def _uuid(chance: random.Random) -> str:
    digits = "".join(chance.choices(CLASSES["h"], k=30))
    return (
        f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-8{digits[15:18]}-{digits[18:30]}"
    )


def _sample(chance: random.Random, form: str) -> str:
    def of(place: re.Match[str]) -> str:
        if place[1] is None:
            return _uuid(chance)
        # Random text of this length has digits; a short one may have none.
        return "".join(chance.choices(CLASSES[place[1]], k=int(place[2]) - 1)) + "7"

    return PLACE.sub(of, form)


FORMS = dict(
    line.split(" ", 1)
    for line in (Path(__file__).parent / "secrets" / "providers.txt")
    .read_text()
    .splitlines()
)
CHANCE = random.Random(35)
SAMPLES = {name: _sample(CHANCE, form) for name, form in FORMS.items()}

NO_FORM = {
    *("baseten", "beehiiv", "betterstack", "codeberg", "dagster", "dodo", "ibm"),
    *("livekit", "loops", "lemlist", "nhost", "novu", "okta", "pagerduty", "pusher"),
    *("quay", "solana-none", "sumo", "tines", "vonage", "zendesk", "ngrok", "appwrite"),
    *("cargo-shuttle", "coinbase", "k8s-bootstrap", "oci", "pipedream"),
}
"""Nothing but its name tells such a value from an id or a hash."""

PUBLIC = {"posthog-pub", "sentry-dsn", "supabase-publishable"}
"""Made to be given away."""

BARE = (
    "the API refused {} because it is revoked",
    "Unauthorized('{}')",
    '{{"error": {{"detail": "bad credentials {}"}}}}',
    'Traceback (most recent call last):\n  File "/app/pay.py", line 3, in pay\nValueError: {}',
)
NAMED = (
    "Authorization: Bearer {}",
    "X-Api-Key: {}",
    "GET https://api.example/x?api_key={}&page=2 failed",
    '{{"apiKey": "{}"}}',
    '{{"body": "{{\\"api_key\\": \\"{}\\"}}"}}',
    "client(api_key='{}')",
    "API_TOKEN={}",
    "token: {}\n",
    "('token', '{}')",
    "curl -H 'x-api-key: {}'",
    "https://h.example/?next=%2Fx%3Ftoken%3D{}",
)


def _survives(shape: str, secret: str) -> bool:
    return secret.strip("=/\n")[-TAIL:] in scrub(shape.format(secret))


def test_there_are_more_than_two_hundred_providers():
    assert len(FORMS) > 250
    assert FORMS.keys() > NO_FORM | PUBLIC


@pytest.mark.parametrize("shape", BARE)
def test_a_credential_is_known_by_its_form(shape: str):
    """Of 300 forms, 137 more were legible wherever nothing named them."""
    legible = {name for name, secret in SAMPLES.items() if _survives(shape, secret)}

    assert legible - NO_FORM - PUBLIC == set()


@pytest.mark.parametrize("shape", NAMED)
def test_a_credential_beside_a_name_is_hidden_whatever_its_form(shape: str):
    alone = {n: s for n, s in SAMPLES.items() if not s.startswith("https://")}

    assert {name for name, secret in alone.items() if _survives(shape, secret)} == set()


ORDINARY = (
    *(
        "pi_3MtwBwLkdIwHu7ix28a3tqPa",
        "cus_NffrFeUfNV2Hib",
        "evt_1NG8Du2eZvKYlo2CUI79vXWy",
    ),
    *("arn:aws:sqs:eu-central-1:123456789012:orders", "redrive-worker-7d9f8b6c5-x2x4z"),
    *("4bf92f3577b34da6a3ce929d0e0e4736", "9c5b94b1-35ad-49bb-b118-8e8fc24abf80"),
    *(
        "test_that_a_worker_which_lost_its_claim_cannot_settle_the_job",
        "sk_learn_pipeline",
    ),
    *("sha256:67a1e1f215ccda113cfc024e8639049257e88f273898f595b61476d128d387e8",),
    *("live_migration_of_the_orders_table", "/srv/app/releases/20260101120000/pay.py"),
    *(
        "re_compile_all_patterns_of_module",
        "api-gateway-7f6d5c4b3a-abcde",
        "fw_rule_42",
    ),
    *(
        "075a7664-e2b1-4a73-aab3-80cce06ef1b2",
        "e2b4c6e5b3430f940e770febcdce0245",
        "ACCA117BE4D8C08C7D0050D0764566D0",
        "fw_9c5b94b1-35ad-49bb-b118-8e8fc24abf80",
        "rnd-forecast-of-next-quarter-2026",
        "cache_key_67a1e1f215ccda113cfc024e8639049257e88f273898f595b61476d128d387e8",
    ),
)


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_name_stays(text: str):
    assert scrub(f"it failed at {text} again") == f"it failed at {text} again"
