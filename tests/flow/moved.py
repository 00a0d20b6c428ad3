"""Handler of the jobs that move: each run writes the number of its job down."""

import os
import time
from pathlib import Path
from typing import Any

from redrive import Handlers

jobs = Handlers()


@jobs.handle("moved.note")
def note(payload: dict[str, Any]) -> None:
    """Write the number in one write."""
    path = Path(os.environ["REDRIVE_TEST_HOME"]) / f"ran-{os.getpid()}"
    with path.open("ab", buffering=0) as ran:
        ran.write(f"{payload['n']}\n".encode())
    time.sleep(0.01)  # so that jobs wait
