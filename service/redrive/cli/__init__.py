"""The command line.

No other package reads settings, wires parts together or chooses exit codes.
"""

from redrive.cli.main import main

__all__ = ["main"]
