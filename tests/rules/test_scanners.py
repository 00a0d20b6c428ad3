"""What a secret scanner finds is hidden: its maintained rules are the yardstick of ours."""

import re
from typing import Any

import pytest
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from redrive.rules.payloads.redact import scrub

NOT_OURS = {
    "Artifactory Credentials": "anything that begins with AP and is as long as a word",
    "Basic Auth Credentials": "the rule takes any character for part of a URL",
    "Base64 High Entropy String": "ids and hashes are random, too",
    "Cloudant Credentials": "a name and a value with nothing between them",
    "Hex High Entropy String": "ids and hashes are random, too",
    "IBM COS HMAC Credentials": "a name and a value with nothing between them",
    "IBM Cloud IAM Key": "a name and a value with nothing between them",
    "JSON Web Token": "the rule is met by eyJ and four characters",
    "Private Key": "the rule is met by the first line alone, which is no secret",
    "Public IP (ipv4)": "an address is no secret",
    "Secret Keyword": "a heuristic without a pattern",
    "SoftLayer Credentials": "a name and a value with nothing between them",
}
SHORTEST = 18
"""Shorter than that, what a rule allows is none of the tokens that it is made for."""
PRINTED = st.characters(
    codec="ascii", exclude_categories=["Cc"], exclude_characters="\\"
)
FIXED = {
    name: plugin
    for name, plugin in get_mapping_from_secret_type_to_class().items()
    if name not in NOT_OURS
}


def test_no_rule_is_left_out_without_a_reason():
    assert set(NOT_OURS) < set(get_mapping_from_secret_type_to_class())
    assert len(FIXED) >= 15


@pytest.mark.parametrize("name", sorted(FIXED))
@settings(
    max_examples=10,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_what_a_scanner_finds_is_hidden(name: str, data: Any):
    """GitHub, GitLab, AWS, Slack, Stripe, npm, PyPI, OpenAI, ..."""
    rule = next(iter(FIXED[name].denylist))
    ascii_rule = re.compile(rule.pattern, (rule.flags | re.ASCII) & ~re.UNICODE)
    secret = data.draw(
        st.from_regex(ascii_rule, fullmatch=True, alphabet=PRINTED).filter(
            lambda text: len(text) >= SHORTEST
        )
    )

    assert scrub(f"it said {secret} and went") != f"it said {secret} and went"
