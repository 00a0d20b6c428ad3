"""`python -m redrive`."""

import sys

from redrive.cli import main

if __name__ == "__main__":
    sys.exit(main())
