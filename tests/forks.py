"""What processes do that are forked for one command, instead of started."""

import os
import runpy
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn


def become(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    place: str,
    *,
    is_main: bool,
) -> NoReturn:
    """Run `redrive` with these arguments as `python -m` does, and exit.

    Args:
        place: the directory whose modules are found first.
        is_main: the module replaces `__main__`, from which a runner may be spawned.
    """
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    paths = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:1] = [place, *paths]
    sys.argv = ["redrive", *arguments]
    code: Any = 70
    try:
        runpy.run_module("redrive", run_name="__main__", alter_sys=is_main)
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:  # noqa: BLE001 # it is what the interpreter would say
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
