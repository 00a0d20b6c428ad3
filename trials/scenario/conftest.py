"""The programs of Prometheus."""

from tests.alerts.conftest import tool

__all__ = ["tool"]
