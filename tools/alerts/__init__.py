"""Tests of the alert rules over time: the real rule engine on synthetic series."""
