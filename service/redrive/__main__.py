"""The program `redrive`, also as `python -m redrive`."""

import gc
import sys

from redrive.cli import main


def run() -> int:
    """Run the command of this process, and return its exit code."""
    code = main()
    gc.freeze()  # all of it goes with the process: no collection need look at it first
    return code


if __name__ == "__main__":
    sys.exit(run())
