"""docs/servers.md: systemd takes its units, and what they start drains in time."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from redrive.database.embedded import free_port
from redrive.settings import Settings
from tests.commands import commands
from tests.flow.harness import wait_for
from tests.postgres import Database

PAGE = (Path(__file__).parents[2] / "docs" / "servers.md").read_text()
UNITS = dict(
    re.findall(
        r"^```ini\n# /etc/systemd/system/(\S+)\n(.*?)^```",
        PAGE,
        re.MULTILINE | re.DOTALL,
    )
)
ENVIRONMENT = dict(
    line.split("=", 1)
    for line in re.findall(
        r"^```sh\n# /etc/redrive/worker.env\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )[0].splitlines()
)
COMPOSE = yaml.safe_load(
    re.findall(r"^```yaml\n# compose.yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[
        0
    ]
)
PROGRAM = "/opt/redrive/bin/redrive"
HANDLERS = """
import pathlib, time
from redrive import Handlers

jobs = Handlers()

@jobs.handle("invoice.charge")
def charge(payload: dict[str, str]) -> None:
    pathlib.Path(payload["began"]).touch()
    time.sleep(1.5)
    pathlib.Path(payload["ended"]).touch()
"""


def values(unit: str, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNITS[unit], re.MULTILINE)


@pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="no systemd-analyze is here"
)
def test_systemd_understands_every_line_of_the_units(tmp_path: Path) -> None:
    for name, text in UNITS.items():
        installed = Path(sys.executable).with_name("redrive")
        file = tmp_path / name.replace("@.", "@9808.")
        file.write_text(text.replace(PROGRAM, str(installed)))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *sorted(tmp_path.iterdir())],
        capture_output=True,
        text=True,
        check=False,
    )

    assert len(UNITS) == 4
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_worker_of_its_unit_drains_before_systemd_would_kill_it(
    database: Database, tmp_path: Path
) -> None:
    """As systemd starts and stops it: its variables, a file for the URL, SIGTERM to one process."""
    unit = "redrive-worker@.service"
    (tmp_path / "billing").mkdir()
    (tmp_path / "billing" / "jobs.py").write_text(HANDLERS)
    (tmp_path / "database").write_text(f"{database.url}\n")
    port = free_port()
    environment = ENVIRONMENT | {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(tmp_path),
    }
    for line in values(unit, "Environment"):
        name, _, value = line.partition("=")
        value = value.replace("%d", str(tmp_path)).replace("%i", str(port))
        environment[name] = value
    (start,) = values(unit, "ExecStart")
    program, *arguments = shlex.split(start)
    assert program == PROGRAM

    began, ended = tmp_path / "began", tmp_path / "ended"
    database.conn.execute(
        "select redrive.enqueue('invoice.charge', jsonb_build_object('began', %s::text, 'ended', %s::text))",
        (str(began), str(ended)),
    )
    with subprocess.Popen(
        [sys.executable, "-m", "redrive", *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            wait_for(began.exists)
            ready = urllib.request.urlopen(
                f"http://127.0.0.1:{port}/readyz", timeout=30
            )
            at = time.monotonic()
            worker.send_signal(signal.SIGTERM)
            _, said = worker.communicate(timeout=300)
        finally:
            worker.kill()

    assert ready.status == 200
    assert worker.returncode == 0, said
    assert ended.exists(), "it did not wait for the job"
    assert database.value("select count(*) from redrive.jobs") == 0
    assert time.monotonic() - at < float(values(unit, "TimeoutStopSec")[0])
    assert values(unit, "KillMode") == ["mixed"]


def test_whoever_stops_a_worker_waits_for_longer_than_it_drains() -> None:
    drain = int(ENVIRONMENT["REDRIVE_DRAIN_TIMEOUT"])
    worker = COMPOSE["services"]["worker"]

    assert int(values("redrive-worker@.service", "TimeoutStopSec")[0]) >= drain + 10
    assert worker["environment"]["REDRIVE_DRAIN_TIMEOUT"] == drain
    assert int(worker["stop_grace_period"].removesuffix("s")) >= drain + 10


def test_compose_and_the_units_start_the_same_commands_with_settings_that_there_are() -> (
    None
):
    services = COMPOSE["services"]
    known = {f"REDRIVE_{name.upper()}" for name in Settings.model_fields}
    given = {name for each in services.values() for name in each["environment"]}
    of_units = [line for unit in UNITS for line in values(unit, "Environment")]
    started = {
        f"redrive {each['command']}".split(" --")[0] for each in services.values()
    }
    units = {
        line.replace(PROGRAM, "redrive").split(" --")[0]
        for unit in UNITS
        for line in values(unit, "ExecStart")
    }

    assert given <= known | {f"{name}_FILE" for name in known}
    assert {line.split("=")[0] for line in of_units} | {*ENVIRONMENT} <= known | {
        "REDRIVE_DATABASE_URL_FILE"
    }
    assert started == units | {"redrive migrate"}
    assert started <= dict(commands()).keys()
    assert {name for each in services.values() for name in each["secrets"]} == {
        *COMPOSE["secrets"]
    }
