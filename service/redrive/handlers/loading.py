"""Import a registry by its name `module:attribute`, as in REDRIVE_HANDLERS."""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from redrive.errors import CannotImport, SettingsError
from redrive.handlers.registry import Handlers


def load(target: str, name: str = "REDRIVE_HANDLERS") -> Handlers:
    """Import the registry that `module:attribute` names.

    Args:
        name: the name of the setting, for error messages.

    Raises:
        CannotImport: the import fails with any exception of the application's modules.
        SettingsError: the attribute is not a registry.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise _refused(name, target, "it must be module:attribute, e.g. app.jobs:jobs")
    if module_name.endswith(".py"):
        meant = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise _refused(
            name, target, f"it must name a module, not a file: {meant}:{attribute}"
        )
    search_working_directory()
    try:
        module = importlib.import_module(module_name)
        found = getattr(module, attribute, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 # application code may raise anything, SystemExit too
        raise _cannot_import(name, target, error) from None
    if not isinstance(found, Handlers):
        is_what = f"that is a {type(found).__name__}, not a Handlers registry"
        what = f"{module_name} has no {attribute}" if found is None else is_what
        there = sorted(
            held for held, one in vars(module).items() if isinstance(one, Handlers)
        )
        raise _refused(
            name, target, what + (f"; it has {', '.join(there)}" if there else "")
        )
    found.module = module_name
    return found


def search_working_directory() -> None:
    """Allow imports from the working directory, as `python -m` does."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _cannot_import(name: str, target: str, error: BaseException) -> CannotImport:
    """Describe a failed import, with the frames of the application that led to it."""
    from redrive.observability.tracebacks import traceback_lines  # noqa: PLC0415 # only here
    from redrive.rules.attempts.failure import describe  # noqa: PLC0415 # as above
    from redrive.rules.payloads.redact import secrets_of_environment  # noqa: PLC0415 # as above

    failure = describe(
        error, target, secrets=secrets_of_environment(os.environ)
    ).record()
    stack = failure["detail"].get("stack", ())
    frames = [frame for frame in stack if not _leads_there(frame)]
    if isinstance(error, SyntaxError) and error.filename is not None:
        at = {
            "file": error.filename,
            "line": error.lineno,
            "function": "<module>",
            "own": True,
        }
        frames.append(at)
    failure["detail"] = {"stack": frames}
    *lines, raised = traceback_lines(failure)
    module, _, _ = target.partition(":")
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(
        f"{error.name}."
    ):
        raised += "; go to where it is, or set PYTHONPATH"
    refused = _refused(name, target, f"it cannot be imported: {raised}")
    return CannotImport("\n".join((str(refused), *lines)))


def _leads_there(frame: Mapping[str, Any]) -> bool:
    """Return True if a frame belongs to the import itself."""
    return frame["module"].startswith(("redrive.", "importlib")) or frame[
        "file"
    ].startswith("<")


def _refused(name: str, target: str, why: str) -> SettingsError:
    return SettingsError(f"{name} is {target!r}; {why}")
