"""The command line and workers, as in their own tests."""

from tests.cli.conftest import redrive, started
from tests.flow.conftest import workers

__all__ = ["redrive", "started", "workers"]
