"""A mail handler that one release broke: it cannot read an address in quotes until a file says that
it is fixed. A handler of webhooks, whose provider is down while there is another file.
"""

import os
from pathlib import Path
from typing import Any

from redrive import Handlers

jobs = Handlers()


@jobs.handle("mail.welcome", queue="mail")
def welcome(payload: dict[str, Any]) -> None:
    if (
        payload["to"].startswith('"')
        and not (Path(os.environ["REDRIVE_TEST_HOME"]) / "fixed").exists()
    ):
        raise TypeError("an address in quotes was not foreseen")


@jobs.handle("hook.deliver", queue="hooks")
def deliver(_: dict[str, Any]) -> None:
    if (Path(os.environ["REDRIVE_TEST_HOME"]) / "down").exists():
        raise ConnectionError("503 from hooks.example")
