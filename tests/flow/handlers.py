"""Handlers of the tests: one for each way in which a handler can behave."""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from redrive import Cancel, GiveUp, Handlers, Job, Policy, Retry, Snooze

jobs = Handlers()
empty = Handlers()
AT_ONCE = {"backoff": 0.01, "backoff_cap": 0.02}
_ledger: dict[int, int] = {}


def note(phase: str, job: Job) -> None:
    """Write a line to this process's ledger, in one write, before anything else can happen."""
    pid = os.getpid()
    if pid not in _ledger:
        path = Path(os.environ["REDRIVE_TEST_HOME"]) / f"ledger-{pid}"
        _ledger[pid] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    line = f"{phase} {job.id} {job.deliveries} {job.attempt} {pid} {time.monotonic():.6f}\n"
    os.write(_ledger[pid], line.encode())


def write(name: str, text: str) -> None:
    """Make a file that is there with all that is in it, or not at all."""
    path = Path(os.environ["REDRIVE_TEST_HOME"]) / name
    written = path.with_name(f".{name}")
    written.write_text(text)
    written.rename(path)


def wait_for_file(name: str) -> None:
    """Block this thread until the test makes a file."""
    path = Path(os.environ["REDRIVE_TEST_HOME"]) / name
    while not path.exists():
        time.sleep(0.01)


# ---------------------------------------------------------------------- ordinary ones


@jobs.handle("work.sync")
def work_sync(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    time.sleep(payload.get("seconds", 0))
    note("end", job)


@jobs.handle("work.async")
async def work_async(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    await asyncio.sleep(payload.get("seconds", 0))
    note("end", job)


@jobs.handle("fail.in-order", on_death="hold")
def fail_in_order(payload: dict[str, Any], job: Job) -> None:
    """Until an operator redrives it."""
    note("start", job)
    time.sleep(payload.get("seconds", 0))
    if not job.redrives:
        raise AssertionError
    note("end", job)


@jobs.handle("work.two", approval="two")
def work_two(payload: dict[str, Any]) -> None:
    pass


@jobs.handle("work.payload-only")
def work_payload_only(payload: dict[str, Any]) -> None:
    pass


@jobs.handle("work.unsampled", sample=False)
def work_unsampled(payload: dict[str, Any]) -> None:
    pass


@jobs.handle("work.returns-coroutine")
def work_returns_coroutine(payload: dict[str, Any], job: Job) -> Any:
    return work_async(payload, job)


@jobs.handle("work.side-effect")
def work_side_effect(payload: dict[str, Any], job: Job) -> None:
    job.side_effect("charged", id=f"ch_{job.id}")


@jobs.handle("work.until-file", policy=Policy(timeout=600, **AT_ONCE))
def work_until_file(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    wait_for_file(payload["file"])
    note("end", job)


def note_cancelled(payload: dict[str, Any], job: Job) -> None:
    note("cancelled", job)


@jobs.handle("cancel.async", policy=Policy(timeout=600), on_cancelled=note_cancelled)
async def cancel_async(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    await asyncio.sleep(100)
    note("end", job)


@jobs.handle("cancel.sync", policy=Policy(timeout=600), on_cancelled=note_cancelled)
def cancel_sync(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    while not job.cancelled:
        time.sleep(0.01)
    raise Cancel


@jobs.handle("work.report")
def work_report(payload: dict[str, Any], job: Job) -> None:
    """Write down what a handler is told of its job."""
    left = (job.deadline - datetime.now(UTC)).total_seconds()
    names = [
        "id",
        "kind",
        "queue",
        "attempt",
        "deliveries",
        "key",
        "redrives",
        "tenant",
        "headers",
    ]
    told = {name: getattr(job, name) for name in names}
    import json

    write(f"report-{job.id}", json.dumps(told | {"payload": payload, "left": left}))


@jobs.handle("work.environment", policy=Policy(max_attempts=1))
def work_environment(payload: dict[str, Any], job: Job) -> None:
    """Write down the environment, and how a process ends that inherits it."""
    import json

    child = subprocess.run(
        [sys.executable, "-m", "redrive", "enqueue", "work.sync"],
        env=os.environ | {"REDRIVE_DATABASE_URL": os.environ["REDRIVE_TEST_URL"]},
        capture_output=True,
        text=True,
        check=False,
    )
    (Path(os.environ["REDRIVE_TEST_HOME"]) / "environment").write_text(
        json.dumps([dict(os.environ), child.returncode, child.stderr])
    )


# ---------------------------------------------------------------------- failing ones


@jobs.handle(
    "fail.until", policy=Policy(max_attempts=10, same_failure_limit=100, **AT_ONCE)
)
def fail_until(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    if job.attempt < payload["attempt"]:
        raise ConnectionError(f"attempt {job.attempt} met no answer")
    note("end", job)


@jobs.handle(
    "fail.outage",
    policy=Policy(max_attempts=1000, same_failure_limit=1000, backoff=1, backoff_cap=1),
)
def fail_outage(payload: dict[str, Any]) -> None:
    """Fail until the test says that the provider works."""
    if not (Path(os.environ["REDRIVE_TEST_HOME"]) / "repaired").exists():
        raise ConnectionError("503 from hooks.example")


@jobs.handle("fail.always", policy=Policy(max_attempts=3, **AT_ONCE))
async def fail_always(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise ConnectionError(f"attempt {job.attempt} of {payload}") from error


@jobs.handle(
    "fail.alike", policy=Policy(max_attempts=50, same_failure_limit=3, **AT_ONCE)
)
def fail_alike(payload: dict[str, Any], job: Job) -> None:
    raise RuntimeError(f"order {job.id * 7919} is in an odd state")


@jobs.handle("fail.bug", policy=Policy(**AT_ONCE))
def fail_bug(payload: dict[str, Any]) -> None:
    payload["n"].no_such_method()


# ---------------------------------------------------------------------- signals

SIGNALS: dict[str, Any] = {
    "retry": lambda: Retry("later", after=0.05),
    "retry-zero": lambda: Retry(after=0),
    "retry-default": lambda: Retry("as usual"),
    "retry-timedelta": lambda: Retry(after=timedelta(milliseconds=20)),
    "retry-negative": lambda: Retry(after=-5),
    "retry-huge": lambda: Retry(after=1e300),
    "retry-longest": lambda: Retry(after=timedelta.max),
    "retry-nan": lambda: Retry(after=float("nan")),
    "retry-infinite": lambda: Retry(after=float("inf")),
    "snooze": lambda: Snooze(0.05),
    "snooze-instant": lambda: Snooze(datetime.now(UTC) + timedelta(milliseconds=50)),
    "snooze-past": lambda: Snooze(datetime(1999, 1, 1, tzinfo=UTC)),
    "snooze-huge": lambda: Snooze(1e300),
    "snooze-nan": lambda: Snooze(float("nan")),
    "snooze-last": lambda: Snooze(datetime.max.replace(tzinfo=UTC)),
    "snooze-past-last": lambda: Snooze(
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))
    ),
    "snooze-naive": lambda: Snooze(datetime(2030, 1, 1)),  # refused in the handler
    "give-up": lambda: GiveUp("the customer is gone"),
    "cancel": lambda: Cancel("no longer wanted"),
}


@jobs.handle("signal", policy=Policy(max_attempts=3, **AT_ONCE))
async def raise_signal(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    if job.deliveries == 1 or payload.get("always"):
        raise SIGNALS[payload["signal"]]()  # noqa: RSE102 # a function that makes one
    note("end", job)


# ---------------------------------------------------------------------- deadlines

HARD = Policy(timeout=0.5, max_attempts=1)


@jobs.handle("hang.async", policy=HARD)
async def hang_async(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    await asyncio.sleep(600)


@jobs.handle("hang.async-deaf", policy=HARD)
async def hang_async_deaf(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    while True:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(600)


@jobs.handle("hang.async-blocking", policy=HARD)
async def hang_async_blocking(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    time.sleep(600)  # noqa: ASYNC251 # that is what it is about


@jobs.handle("hang.for-a-while", policy=Policy(timeout=3, max_attempts=1))
def hang_for_a_while(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    time.sleep(60)


@jobs.handle("hang.sync", policy=HARD)
def hang_sync(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    while True:
        pass


@jobs.handle("hang.sync-deaf", policy=HARD)
def hang_sync_deaf(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    while True:
        try:
            time.sleep(600)
        except BaseException:  # noqa: BLE001 # that is what it is about
            continue


@jobs.handle("hang.c", policy=HARD)
def hang_c(payload: dict[str, Any], job: Job) -> None:
    """A call into C that holds the GIL."""
    note("start", job)
    ctypes.PyDLL(None).sleep(600)


@jobs.handle("hang.gil", policy=Policy(timeout=600, max_attempts=1))
async def hang_gil(payload: dict[str, Any], job: Job) -> None:
    """Let nothing else run in this interpreter until the test opens the pipe `gil`."""
    note("start", job)
    pipe = os.fsencode(Path(os.environ["REDRIVE_TEST_HOME"]) / "gil")
    os.close(ctypes.PyDLL(None).open(pipe, os.O_RDONLY))
    note("end", job)


# ---------------------------------------------------------------------- ways out


def _recurse() -> None:
    _recurse()


def _segfault() -> None:
    ctypes.string_at(0)


def _close_fds(*fds: int) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def _fork_and_die(*, detached: bool) -> None:
    """Leave a child behind that holds every descriptor of this process open, and die."""
    if os.fork() == 0:
        if detached:
            os.setsid()
        time.sleep(60)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def _leak_threads() -> None:
    for _ in range(20):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    threading.Thread(target=time.sleep, args=(60,)).start()


def _change_the_process() -> None:
    os.chdir("/")
    with contextlib.suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    sys.setrecursionlimit(200)
    os.environ.clear()
    os.umask(0o777)
    sys.path.clear()
    asyncio.set_event_loop_policy(None)
    sys.stdout = sys.stderr = None


def _raise(error: BaseException) -> None:
    raise error


def _print_much() -> None:
    with contextlib.suppress(OSError):  # another handler may have closed it
        print("x" * 1_000_000, "\x1b[2J\0")


EXITS: dict[str, Any] = {
    "sys-exit": lambda: sys.exit(3),
    "sys-exit-zero": lambda: sys.exit(0),
    "sys-exit-text": lambda: sys.exit("leaving"),
    "keyboard-interrupt": lambda: _raise(KeyboardInterrupt()),
    "generator-exit": lambda: _raise(GeneratorExit()),
    "stop-iteration": lambda: _raise(StopIteration(7)),
    "stop-async-iteration": lambda: _raise(StopAsyncIteration()),
    "cancelled": lambda: _raise(asyncio.CancelledError()),
    "timeout": lambda: _raise(TimeoutError()),
    "memory": lambda: _raise(MemoryError("of 8 EiB")),
    "recursion": _recurse,
    "base-exception": lambda: _raise(BaseException("bare")),
    "group": lambda: _raise(
        BaseExceptionGroup("two", [KeyboardInterrupt(), ValueError("x")])
    ),
    "not-an-exception": lambda: _raise("text"),  # type: ignore[arg-type]
    "os-exit": lambda: os._exit(9),
    "os-exit-zero": lambda: os._exit(0),
    "abort": os.abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "term": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
    "segfault": _segfault,
    "realtime-signal": lambda: os.kill(os.getpid(), 40),
    "close-std": lambda: _close_fds(0, 1, 2),
    "close-all": lambda: _close_fds(*range(200)),
    "fork-and-die": lambda: _fork_and_die(detached=False),
    "fork-detached-and-die": lambda: _fork_and_die(detached=True),
    "threads": _leak_threads,
    "change-process": _change_the_process,
    "print": _print_much,
    "child": lambda: subprocess.Popen(["sleep", "60"]),
}
SURVIVED = {
    "close-std",
    "term",
    "interrupt",
    "threads",
    "change-process",
    "print",
    "child",
}
KILLERS = {
    "os-exit",
    "os-exit-zero",
    "abort",
    "kill",
    "segfault",
    "realtime-signal",
    "fork-and-die",
    "fork-detached-and-die",
    "close-all",
}


@jobs.handle("exit.sync", policy=Policy(max_attempts=1, timeout=30))
def exit_sync(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    EXITS[payload["way"]]()


@jobs.handle("exit.async", policy=Policy(max_attempts=1, timeout=30))
async def exit_async(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    EXITS[payload["way"]]()


@jobs.handle("exit.cancels-itself", policy=Policy(max_attempts=1, timeout=30))
async def exit_cancels_itself(payload: dict[str, Any], job: Job) -> None:
    """Ask for a cancellation that only the next await would meet, and return before it."""
    note("start", job)
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


@jobs.handle("exit.leaks-tasks", policy=Policy(max_attempts=1, timeout=30))
async def exit_leaks_tasks(payload: dict[str, Any], job: Job) -> None:
    async def deaf() -> None:
        while True:
            with contextlib.suppress(BaseException):
                await asyncio.sleep(60)

    note("start", job)
    jobs.leaked = asyncio.ensure_future(deaf())  # type: ignore[attr-defined]


@jobs.handle("exit.orphan", policy=Policy(timeout=60))
def exit_orphan(payload: dict[str, Any], job: Job) -> None:
    """Leave a child of its own session behind that holds every descriptor open; end well."""
    note("start", job)
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)


@jobs.handle("exit.balloon")
def exit_balloon(_: dict[str, Any], job: Job) -> None:
    """Grow until the kernel puts an end to it."""
    note("start", job)
    hoard = bytearray()
    while len(hoard) < 1 << 30:
        hoard += b"x" * (1 << 20)


@jobs.handle("exit.poison", policy=Policy(max_attempts=20, timeout=30))
def exit_poison(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)


@jobs.handle("exit.pod", policy=Policy(timeout=30))
def exit_pod(payload: dict[str, Any], job: Job) -> None:
    """Kill the supervisor, and with it everything in the pod, as running out of memory does."""
    note("start", job)
    time.sleep(payload["seconds"])
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(30)


# ---------------------------------------------------------------------- completing in a transaction
# of one's own

WRITE = "insert into effects (job, delivery) values (%s, %s)"


@jobs.handle("effect.sync", policy=Policy(max_attempts=3, **AT_ONCE))
def effect_sync(payload: dict[str, Any], job: Job) -> None:
    import psycopg

    note("start", job)
    how = payload["how"]
    conn = psycopg.connect(
        os.environ["REDRIVE_TEST_URL"], autocommit=how == "autocommit"
    )
    conn.execute(WRITE, (job.id, job.deliveries))
    job.complete(conn)
    if how == "open":
        jobs.kept = conn  # type: ignore[attr-defined] # a pool of its own would keep it, too
        return
    if how == "open-and-raise":
        jobs.kept = conn  # type: ignore[attr-defined]
        raise ConnectionError("with the transaction open")
    if how == "rollback" and job.attempt == 1:
        conn.rollback()
    elif how == "forget" and job.attempt == 1:
        conn.close()
        return
    else:
        conn.commit()
    note("committed", job)
    conn.close()
    if how == "kill" and job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raise" and job.attempt == 1:
        raise ConnectionError("after the commit")


@jobs.handle("effect.asleep", policy=Policy(timeout=5, max_attempts=2, **AT_ONCE))
def effect_asleep(payload: dict[str, Any], job: Job) -> None:
    """Outlive the timeout within a statement: the server does not notice that we are killed."""
    import psycopg

    note("start", job)
    if job.deliveries == 1:
        conn = psycopg.connect(os.environ["REDRIVE_TEST_URL"])
        job.complete(conn)
        conn.execute("select pg_sleep(%s)", (payload["seconds"],))


@jobs.handle("effect.async", policy=Policy(max_attempts=3, **AT_ONCE))
async def effect_async(payload: dict[str, Any], job: Job) -> None:
    import psycopg

    note("start", job)
    how = payload["how"]
    conn = await psycopg.AsyncConnection.connect(
        os.environ["REDRIVE_TEST_URL"], autocommit=how == "autocommit"
    )
    await conn.execute(WRITE, (job.id, job.deliveries))
    await job.complete(conn)
    if how == "open":
        jobs.kept = conn  # type: ignore[attr-defined]
        return
    if how == "rollback" and job.attempt == 1:
        await conn.rollback()
    else:
        await conn.commit()
    note("committed", job)
    await conn.close()


@jobs.handle("work.async-until-file", policy=Policy(timeout=20, **AT_ONCE))
async def work_async_until_file(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    await asyncio.to_thread(wait_for_file, payload["file"])
    note("end", job)


@jobs.handle("work.child-until-file", policy=Policy(timeout=600, **AT_ONCE))
def work_child_until_file(payload: dict[str, Any], job: Job) -> None:
    """Start a process, hold a transaction open, and wait."""
    import psycopg

    with (
        subprocess.Popen(["sleep", "600"]) as child,
        psycopg.connect(os.environ["REDRIVE_TEST_DIRECT_URL"]) as conn,
    ):
        conn.execute("select set_config('application_name', 'handler', false)")
        write("child", str(child.pid))
        note("start", job)
        wait_for_file(payload["file"])
        child.kill()
    note("end", job)
