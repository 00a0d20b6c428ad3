"""The command line, as for the tests of the commands."""

from tests.cli.conftest import redrive, started

__all__ = ["redrive", "started"]
