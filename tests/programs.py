"""Programs that tests use and Python does not bring."""

import os
from typing import NoReturn

import pytest


def missing(name: str, how: str) -> NoReturn:
    """Skip the test and say what to install; in CI, where nobody sees a skip, fail it."""
    say = f"{name} is missing: install it ({how})"
    if os.environ.get("CI") == "true":
        pytest.fail(say, pytrace=False)
    pytest.skip(say)
