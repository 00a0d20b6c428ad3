"""The command line: the only place that reads settings, wires parts together and chooses exit
codes.
"""

from redrive.cli.main import main

__all__ = ["main"]
