"""What a run starts ends with it, however that ends."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flow.harness import alive, wait_for
from tests.programs import missing
from trials.chaos.servers import POOLER

STARTS = """
import signal, sys
from pathlib import Path
from trials.chaos.servers import Pooler

signal.signal(signal.SIGTERM, signal.default_int_handler)
pooler = Pooler("postgresql://postgres@127.0.0.1:1/postgres", Path(sys.argv[1]))
try:
    print(pooler._process.pid, pooler._home, flush=True)
    signal.pause()
except KeyboardInterrupt:
    pooler.close()
"""


@pytest.mark.parametrize(
    "how", [signal.SIGTERM, signal.SIGKILL], ids=["ended", "killed"]
)
def test_a_pooler_ends_with_its_run_and_leaves_nothing(
    tmp_path: Path, how: signal.Signals
):
    if POOLER is None:
        missing("pgbouncer", "Debian: apt-get install pgbouncer")
    with subprocess.Popen(
        [sys.executable, "-c", STARTS, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        pid, _, home = run.stdout.readline().strip().partition(" ")
        wait_for((Path(home) / "pid").exists)
        run.send_signal(how)

    wait_for(lambda: not Path(home).exists())
    assert not alive(int(pid))
