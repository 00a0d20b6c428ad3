"""What strangers bring: habits, libraries and settings from public lists of issues.

One file per case, which begins with the repository and number that gave the idea. A case
says what a user expects. `make test-long` runs the cases that need no further package;
`make strangers-test` runs all of them, with the real agents and drivers.
"""

from importlib.util import find_spec

NEED_MORE = ["test_agent_*.py", "test_pool_of_psycopg.py"]
"""Cases that need a package which only `make strangers-test` has."""

collect_ignore_glob = [] if find_spec("ddtrace") else NEED_MORE
