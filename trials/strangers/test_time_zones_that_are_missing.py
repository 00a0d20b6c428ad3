"""celery/celery #7707.

A slim image has no time zones. The error of a schedule says what to install.
"""

import subprocess
import sys


def test_a_schedule_says_what_to_install() -> None:
    program = "from redrive import Schedule; Schedule('0 7 * * *', tz='Europe/Berlin')"
    found = (
        "import sys; sys.modules['tzdata'] = None\n"
        f"try:\n    {program}\nexcept ValueError as error:\n    print(error)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", found],
        env={"PYTHONTZPATH": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pip install tzdata" in ran.stdout, ran.stderr
