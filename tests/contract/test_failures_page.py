"""The pages about failures and targets: their examples run."""

import base64
import re
import time
from pathlib import Path
from typing import Any

import yaml

from redrive.extras.targets.caller import register
from redrive.extras.targets.file import Targets
from redrive.extras.targets.signing import signed
from redrive.handlers import Handlers

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def _blocks(page: str, language: str) -> list[str]:
    return [
        text
        for kind, text in BLOCK.findall((DOCS / page).read_text())
        if kind == language
    ]


def test_the_example_of_targets_is_one():
    first, schedules, *_ = _blocks("http-targets.md", "yaml")
    read, jobs = Targets.model_validate(yaml.safe_load(first + schedules)), Handlers()
    assert set(read.targets) == {"invoice.charge", "mail.*"}
    for wanted in read.targets.values():
        wanted.signing_key_file = None
    register(jobs, read, 1)
    assert set(jobs.schedules) == {"mail.digest", "digest.weekly"}


def test_the_example_of_a_receiver_verifies_what_is_sent():
    """With the library that the page shows, and no code of one's own."""
    space: dict[str, Any] = {}
    exec(_blocks("http-targets.md", "python")[0], space)
    secrets = [f"whsec_{base64.b64encode(bytes([n]) * 32).decode()}" for n in (1, 2)]
    keys = [bytes([n]) * 32 for n in (1, 2)]
    now = int(time.time())

    for secret in secrets:
        assert space["is_genuine"](secret, signed(keys, "17-1", now, b"{}"), b"{}")
    for headers, body in (
        (signed(keys, "17-1", now, b"{}"), b"{ }"),
        (signed(keys, "17-1", now, b"{}") | {"webhook-id": "18-1"}, b"{}"),
        (signed(keys[1:], "17-1", now, b"{}"), b"{}"),
        (signed(keys, "17-1", now - 3600, b"{}"), b"{}"),
    ):
        assert not space["is_genuine"](secrets[0], headers, body)
