"""Import a registry by its name `module:attribute`, as in REDRIVE_HANDLERS."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

from redrive.errors import CannotImport, SettingsError
from redrive.handlers.registry import Handlers
from redrive.rules.rows import Fields


def load(target: str, name: str = "REDRIVE_HANDLERS") -> Handlers:
    """Import the registry that `module:attribute` names.

    Args:
        name: the name of the setting, for error messages.

    Raises:
        CannotImport: the import fails with any exception of the application's modules.
        SettingsError: the attribute is not a registry.
    """
    module_name, attribute = _parts(target, name)
    search_working_directory()

    try:
        module = importlib.import_module(module_name)
        found = getattr(module, attribute, None)
    except KeyboardInterrupt:
        # Ctrl-C ends the command. It is no fault of the module.
        raise
    except BaseException as error:  # noqa: BLE001 # application code may raise anything, SystemExit too
        raise _cannot_import(name, target, error) from None

    if not isinstance(found, Handlers):
        why = _no_registry(module, attribute, found)
        raise _refused(name, target, why)

    found.module = module_name
    return found


def _parts(target: str, name: str) -> tuple[str, str]:
    """Return the module and the attribute of `module:attribute`."""
    module, _, attribute = target.partition(":")
    if not module or not attribute:
        raise _refused(name, target, "it must be module:attribute, e.g. app.jobs:jobs")

    if module.endswith(".py"):
        dotted = module.removesuffix(".py").strip("./").replace("/", ".")
        why = f"it must name a module, not a file: {dotted}:{attribute}"
        raise _refused(name, target, why)

    return module, attribute


def _no_registry(module: ModuleType, attribute: str, found: object) -> str:
    """Say what the attribute is instead, and which registries the module has."""
    why = f"that is a {type(found).__name__}, not a Handlers registry"
    if found is None:
        why = f"{module.__name__} has no {attribute}"

    members = vars(module).items()
    registries = sorted(name for name, one in members if isinstance(one, Handlers))
    if registries:
        return f"{why}; it has {', '.join(registries)}"

    return why


def add_targets(handlers: Handlers, path: Path, slots: int) -> None:
    """Add a handler for each HTTP target of a file. The extra `http` brings this part.

    Args:
        slots: limit of the connections that are kept open.

    Raises:
        SettingsError: the extra is not installed, or the file cannot be used.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 # it is slow to import

    try:
        (part,) = entry_points(group="redrive.parts", name="targets")
        part.load()(handlers, path, slots)
    except ModuleNotFoundError:
        msg = "REDRIVE_TARGETS needs the http extra: pip install 'redrive[http]'"
        raise SettingsError(msg) from None


def search_working_directory() -> None:
    """Allow imports from the working directory, as `python -m` does."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _cannot_import(name: str, target: str, error: BaseException) -> CannotImport:
    """Describe a failed import, with the frames of the application that led to it."""
    from redrive.observability.tracebacks import traceback_lines  # noqa: PLC0415 # only here
    from redrive.rules.attempts.failure import describe  # noqa: PLC0415 # as above
    from redrive.rules.payloads.redact import secrets_of_environment  # noqa: PLC0415 # as above

    secrets = secrets_of_environment(os.environ)
    failure = describe(error, target, secrets=secrets).record()
    failure["detail"] = {"stack": _application_frames(failure, error)}

    *lines, raised = traceback_lines(failure)
    module = target.partition(":")[0]
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(
        f"{error.name}."
    ):
        raised += "; go to where it is, or set PYTHONPATH"

    refused = _refused(name, target, f"it cannot be imported: {raised}")
    return CannotImport("\n".join((str(refused), *lines)))


def _application_frames(failure: Fields, error: BaseException) -> list[Fields]:
    """Return the frames of the application, and the place of a syntax error."""
    stack = failure["detail"].get("stack", ())
    frames = [frame for frame in stack if not _leads_there(frame)]

    # The stack of a syntax error ends before the file that has it.
    if isinstance(error, SyntaxError) and error.filename is not None:
        place = {"file": error.filename, "line": error.lineno}
        frames.append(place | {"function": "<module>", "own": True})

    return frames


def _leads_there(frame: Fields) -> bool:
    """Return True if a frame belongs to the import itself."""
    is_library = frame["module"].startswith(("redrive.", "importlib"))
    return is_library or frame["file"].startswith("<")


def _refused(name: str, target: str, why: str) -> SettingsError:
    return SettingsError(f"{name} is {target!r}; {why}")
