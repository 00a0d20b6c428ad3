"""Handlers: the function for each kind of job, its declaration and its lookup."""

from redrive.handlers.handler import (
    Approval,
    Breaker,
    Death,
    Handler,
    Upgrade,
    decode_object,
    encode_json,
)
from redrive.handlers.loading import add_targets, load, search_working_directory
from redrive.handlers.registry import Handlers, matching

__all__ = [
    "Approval",
    "Breaker",
    "Death",
    "Handler",
    "Handlers",
    "Upgrade",
    "add_targets",
    "decode_object",
    "encode_json",
    "load",
    "matching",
    "search_working_directory",
]
