"""The pages about failures and targets: their examples run."""

import hashlib
import hmac
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from redrive.targets import Targets, signature

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def _blocks(page: str, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall((DOCS / page).read_text()) if kind == language]


@pytest.mark.parametrize("page", ["failures.md", "http-targets.md"])
def test_every_example_runs(page: str):
    assert _blocks(page, "python")
    for text in _blocks(page, "python"):
        exec(compile(text, page, "exec"), {"__name__": "example"})


def test_the_example_of_targets_is_one():
    (text,) = _blocks("http-targets.md", "yaml")
    assert set(Targets.model_validate(yaml.safe_load(text)).targets) == {"invoice.charge", "mail.*"}


def test_the_example_of_a_receiver_verifies_what_is_sent():
    space: dict[str, Any] = {}
    exec(_blocks("http-targets.md", "python")[0], space)
    now = int(time.time())

    assert space["is_genuine"](b"k", signature(b"k", now, b"{}"), b"{}")
    assert not space["is_genuine"](b"k", signature(b"k", now, b"{}"), b"{ }")
    assert not space["is_genuine"](b"other", signature(b"k", now, b"{}"), b"{}")
    assert not space["is_genuine"](b"k", signature(b"k", now - 3600, b"{}"), b"{}")
    assert hmac.new(b"k", f"{now}.".encode() + b"{}", hashlib.sha256).hexdigest() in signature(
        b"k", now, b"{}"
    )
