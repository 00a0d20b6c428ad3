"""The program `redrive`, also as `python -m redrive`."""

import gc
import sys

from redrive.cli import main


def run() -> int:
    """Run the command of this process, and return its exit code."""
    code = main()
    gc.freeze()  # these objects live until exit, so collections can skip them
    return code


if __name__ == "__main__":
    sys.exit(run())
