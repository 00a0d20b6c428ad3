"""What a child process works out: in a process of its own, for pytest has threads."""

import subprocess
import sys

PROGRAM = """
import os, threading
from redrive.cli.support.child import in_child

def said(work):
    try:
        return work()
    except Exception as error:
        return type(error).__name__, str(error)

here = os.getpid()
print(in_child(os.getpid) != here)
print(said(lambda: in_child(lambda: int("x"))))
print(in_child(lambda: os.getpid() == here or os._exit(3)))
going = threading.Event()
threading.Thread(target=going.wait).start()
print(in_child(os.getpid) == here)
going.set()
"""


def test_a_child_answers_or_raises_and_its_end_is_seen() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True
    )

    assert ran.stdout.splitlines() == [
        "True",
        """('ValueError', "invalid literal for int() with base 10: 'x'")""",
        "True",
        "True",
    ]
    assert ran.stderr == ""
