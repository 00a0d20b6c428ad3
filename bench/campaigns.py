"""What a campaign over a million dead letters costs: its plan, and another queue beside it."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bench import usage
from bench.scenarios import Figures, Lab, latencies
from bench.session import Session
from bench.systems import System
from redrive.database.connections.connect import connect
from redrive.dead_letters.campaigns.store import plan, start
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter

LETTERS = 1_000_000
RATE = 50.0
CHOSEN = Filter(queue=["campaign"])

_BURY = """
    insert into redrive.dead_letters (
        id, redrives, queue, kind, reason, category, error_class, message, fingerprint, attempts,
        deliveries, losses, priority, lane, created_at, died_at, headers, payload)
    select 10000000 + n, 0, 'campaign', 'noop', 'not_retryable', 'bug', 'ValueError', 'no',
           'f' || n %% 50, 1, 1, 0, 0, 0, now(), now() + n * interval '1 ms', '{}', '{"n": 1}'
    from generate_series(1, %s) n"""


def _buried(lab: Lab, at: Session) -> int:
    letters = max(1000, round(LETTERS * lab.size))
    at.monitor.execute("set statement_timeout = 0")
    at.monitor.execute(_BURY, (letters,))
    lab.server.settle_down(at.database)
    return letters


def planned(lab: Lab, system: System) -> Figures:
    """Seconds to plan it, and memory of who asks and of the server's process."""
    with lab.session(system) as at:
        letters = _buried(lab, at)
        with connect(
            lab.server.url_of(at.database), name="bench", statement_timeout="0"
        ) as conn:
            client, server, most = os.getpid(), conn.info.backend_pid, 0
            memory, cpu = usage.memory([client]), usage.cpu_of(server)
            began = time.perf_counter()
            with ThreadPoolExecutor(1) as pool:
                planning = pool.submit(plan, conn, CHOSEN, actor="bench")
                while not planning.done():
                    most = max(most, usage.memory([server], "Pss_Anon"))
                    time.sleep(0.05)
            assert planning.result().matched == letters
            return {
                "letters": letters,
                "plan_seconds": time.perf_counter() - began,
                "database_seconds": usage.cpu_of(server) - cpu,
                "client_mib": (usage.memory([client]) - memory) / 2**20,
                "server_mib": most / 2**20,
            }


def another_queue(lab: Lab, system: System, *, is_beside: bool) -> Figures:
    """From enqueue to the handler's beginning in another queue of the same worker."""
    probes = max(100, round(300 * lab.size))
    with lab.session(system) as at:
        _buried(lab, at)
        at.start_workers(1, system.config("latency"))
        at.wait_for("run", 60)
        if is_beside:
            with connect(lab.server.url_of(at.database), name="bench") as conn:
                conn.execute("set statement_timeout = 0")
                made = plan(conn, CHOSEN, actor="bench").plan
                assert made is not None
                start(conn, made, Terms(rate=RATE), actor="bench", why="benchmark")
        time.sleep(10)
        at.start_producer("probe", probes, 60)
        return latencies(at, probes * 0.075 + 10, probes)


CASES = {
    "planned": planned,
    "another queue, alone": partial(another_queue, is_beside=False),
    f"another queue, beside it at {RATE:.0f}/s": partial(another_queue, is_beside=True),
}


def campaign(lab: Lab, system: System, case: str) -> Figures:
    """One of the cases."""
    return CASES[case](lab, system)
