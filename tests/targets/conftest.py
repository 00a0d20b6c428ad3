"""Workers in processes of their own, as in `tests/flow`."""

from tests.flow.conftest import _no_settings, database, workers

__all__ = ["_no_settings", "database", "workers"]
