"""Write every file that is made from others or is a copy: `make generate`.

With --check nothing is written, and each stale file is named. Each generator does the
same for its own files when it runs as a program.
"""

import argparse
import subprocess
import sys

from tools import (
    chart_copies,
    code_owners,
    docs_tables,
    faults_page,
    generated,
    metrics_page,
    python_page,
    values_table,
    versions,
)
from tools.dashboards import generate as dashboards
from tools.producers import generate as producers

GENERATORS = (
    versions.files,
    dashboards.files,
    chart_copies.files,
    values_table.files,
    docs_tables.files,
    code_owners.files,
    faults_page.files,
    metrics_page.files,
    python_page.files,
    producers.files,
)
"""Generators in order: the copies and the metrics page are made from the dashboards."""

SCHEMA = generated.ROOT / "tools" / "schema.py"


def schema(*, check: bool) -> int:
    """Run the program for sql/schema.sql in its place; return its exit status."""
    if not SCHEMA.exists():
        return 0
    arguments = ["--check"] if check else []
    return subprocess.run([sys.executable, SCHEMA, *arguments], check=False).returncode


def main() -> int:
    """Run all generators; return the exit status: 1 if a file is stale."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    generated.add_check(options)
    check = options.parse_args().check
    return max(generated.run(*GENERATORS, check=check), schema(check=check))


if __name__ == "__main__":
    sys.exit(main())
