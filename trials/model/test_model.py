"""The model notices a broken promise, and its page names what is checked."""

import re

import pytest

from tools.generated import ROOT
from tools.model import tlc
from tools.model.__main__ import GUARDS
from tools.model.settings import PROMISES, SMALL, STEPS, without

pytestmark = pytest.mark.model


def test_a_broken_promise_is_found():
    """Without the fence on deliveries, a stale settlement counts: TLC must say so."""
    setting = without("fence: delivery", SMALL[0])

    found = tlc.run("Check", setting.config, {"Check.tla": setting.module})

    assert found.broken == "Promise3"
    assert "a stale settlement counted" in found.text


def test_every_guard_of_the_model_is_named():
    texts = [path.read_text() for path in tlc.MODELS.glob("*.tla")]
    named = {
        name for text in texts for name in re.findall(r'(?:Guard|Is)\("([^"]+)"', text)
    }

    assert named == set(GUARDS)


def test_the_page_names_every_promise_that_is_checked():
    page = (ROOT / "docs" / "model" / "README.md").read_text()

    assert not [
        name
        for name in (*PROMISES, *STEPS, "Promise2", "Promise7")
        if f"`{name}`" not in page
    ]
