"""The handlers of `judged` after somebody changed a policy."""

from typing import Any

from redrive import Handlers, Policy

jobs = Handlers()


@jobs.handle("charge", policy=Policy(max_attempts=5))
@jobs.handle("die.bug")
def work(payload: dict[str, Any]) -> None: ...
