"""Only `make libraries-test` collects this folder, since only it has the libraries."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("stripe") else ["test_*.py"]
