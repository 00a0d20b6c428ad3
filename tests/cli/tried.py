"""Handlers that are tried: each goes a way of its own to the world, or none."""

import asyncio
import ctypes
import errno
import fcntl
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from redrive import Handlers, Job, Policy

jobs = Handlers()
Payload = dict[str, Any]


@jobs.handle("bug")
def bug(payload: Payload) -> None:
    msg = f"no such currency: {payload['currency']}, token={payload['token']}"
    raise ValueError(msg)


@jobs.handle("mended")
def mended(payload: Payload, job: Job) -> None:
    job.side_effect("charged", id=payload["n"])
    job.progress(0.5)
    job.checkpoint({"page": payload["n"]})
    subprocess.run(["true"], check=True)
    ring = ctypes.CDLL(None, use_errno=True).syscall(425, 0, None)
    if (job.redrives, ring, ctypes.get_errno()) != (1, -1, errno.EPERM):
        raise AssertionError


@jobs.handle("mended.async")
async def mended_async(payload: Payload, job: Job) -> str:
    await asyncio.gather(
        asyncio.sleep(0), asyncio.to_thread(job.checkpoint, {"n": payload["n"]})
    )
    return "done"


@jobs.handle("call.postgres")
def write_to_postgres(payload: Payload) -> None:
    with psycopg.connect(payload["url"]) as conn:
        conn.execute("create table written (n int)")


@jobs.handle("call.postgres.async")
async def write_to_postgres_async(payload: Payload) -> None:
    async with await psycopg.AsyncConnection.connect(payload["url"]) as conn:
        await conn.execute("create table written (n int)")


@jobs.handle("call.urllib")
def call_by_urllib(payload: Payload) -> None:
    urllib.request.urlopen(f"http://127.0.0.1:{payload['port']}/")


@jobs.handle("call.swallowed")
def call_and_say_nothing(payload: Payload) -> None:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", payload["port"]))


@jobs.handle("call.curl")
def call_by_another_program(payload: Payload) -> None:
    program = (
        f"import socket; socket.create_connection(('127.0.0.1', {payload['port']}))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@jobs.handle("call.thread")
def call_by_a_thread(payload: Payload) -> None:
    thread = threading.Thread(target=call_and_say_nothing, args=(payload,))
    thread.start()
    thread.join()


@jobs.handle("call.asyncio")
async def call_by_asyncio(payload: Payload) -> None:
    await asyncio.open_connection("127.0.0.1", payload["port"])


@jobs.handle("call.datagram")
def call_by_a_datagram(payload: Payload) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.sendto(b"!", payload["path"])


@jobs.handle("call.pair")
def call_by_one_of_a_pair(payload: Payload) -> None:
    with socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0] as other:
        other.sendto(b"!", payload["path"])


@jobs.handle("call.listen")
def listen(payload: Payload) -> None:
    with suppress(OSError), socket.socket() as other:
        other.listen()


@jobs.handle("call.fast-open")
def call_by_a_message_that_connects(payload: Payload) -> None:
    with suppress(OSError), socket.socket() as other:
        address = ("127.0.0.1", payload["port"])
        other.sendto(b"!", socket.MSG_FASTOPEN, address)


@jobs.handle("call.fast-open.long")
def call_by_a_long_message_that_connects(payload: Payload) -> None:
    with suppress(OSError), socket.socket() as other:
        address = ("127.0.0.1", payload["port"])
        other.sendmsg([b"!"], [], socket.MSG_FASTOPEN, address)


@jobs.handle("call.mapped")
def call_by_a_mapped_address(payload: Payload) -> None:
    with suppress(OSError), socket.socket(socket.AF_INET6) as other:
        other.connect(("::ffff:127.0.0.1", payload["port"]))


@jobs.handle("call.for-ever", policy=Policy(timeout=60))
def call_again_and_again(payload: Payload) -> None:
    while True:
        call_and_say_nothing(payload)
        time.sleep(0.01)


@jobs.handle("signals")
def send_signals(payload: Payload) -> None:
    """Signal ourselves, a child, and a process that is not a child of ours."""
    os.kill(os.getpid(), signal.SIGCONT)
    signal.raise_signal(signal.SIGCONT)
    child = subprocess.Popen(["sleep", "600"])
    child.kill()
    child.wait()
    for send in (os.kill, _send_by_pidfd):
        with suppress(PermissionError):
            send(payload["pid"], signal.SIGTERM)
            raise AssertionError


@jobs.handle("signals.indirect")
def send_signals_indirectly(payload: Payload) -> None:
    """Let a pipe signal another process, and let the kernel end it at its limit."""
    pid, ours = payload["pid"], os.pipe()
    commands = (
        (fcntl.fcntl, fcntl.F_SETOWN, pid),
        (fcntl.fcntl, 15, struct.pack("ii", 1, pid)),
        (fcntl.ioctl, 0x8901, struct.pack("i", pid)),
    )
    for call, number, value in commands:
        with suppress(PermissionError):
            call(ours[0], number, value)
            raise AssertionError(number)
    with suppress(PermissionError):
        resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))
        raise AssertionError
    with suppress(OSError):
        os.kill(-(2**31), signal.SIGTERM)
        raise AssertionError
    resource.prlimit(0, resource.RLIMIT_CORE)


@jobs.handle("file.changed")
def change_a_file(payload: Payload) -> None:
    """Try each way to the mode, the owner, the times and the attributes of a file.

    Those to the mode and the times have no effect; the others are refused.
    """
    path = payload["path"]
    before = Path(path).stat()
    linked = Path(tempfile.mkdtemp()) / "link"
    linked.symlink_to(path)
    parent = os.open(Path(path).parent, os.O_RDONLY)
    opened = os.open(path, os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    Path(path).chmod(0o777)
    linked.chmod(0o777)
    os.chmod(Path(path).name, 0o777, dir_fd=parent)
    os.fchmod(opened, 0o777)
    Path(f"/proc/self/fd/{opened}").chmod(0o777)
    os.utime(path, (1, 1))
    with suppress(PermissionError):
        os.utime(path)
        raise AssertionError
    os.utime(opened, (1, 1))
    subprocess.run(["chmod", "777", path], check=True)
    if libc.syscall(452, -100, path.encode(), 0o777, 0) or Path(path).stat() != before:
        raise AssertionError
    ways = (
        lambda: os.chown(path, 12, 12),
        lambda: os.lchown(path, 12, 12),
        lambda: os.fchown(opened, 12, 12),
        lambda: os.setxattr(path, "user.a", b"!"),
        lambda: fcntl.ioctl(opened, 0x40086602, struct.pack("l", 0x40)),
    )
    for n, change in enumerate(ways):
        with suppress(PermissionError):
            change()
            raise AssertionError(n)


@jobs.handle("file.copied")
def copy_a_file(payload: Payload) -> None:
    """Copy a file into our own directory, as usual."""
    copy = Path(tempfile.mkdtemp()) / "copy"
    shutil.copy2(payload["path"], copy)
    (copy.parent / "new").touch()
    subprocess.run(["touch", copy.parent / "other"], check=True)
    made = {file.name for file in copy.parent.iterdir()}
    if made != {"copy", "new", "other"} or copy.read_text() != "an order":
        raise AssertionError


@jobs.handle("descendants", policy=Policy(timeout=60))
def leave_descendants(payload: Payload) -> None:
    """Leave a child and a grandchild whose parent has ended, and keep running."""
    double = "import subprocess; subprocess.Popen(['sleep', '611'])"
    subprocess.run([sys.executable, "-c", double], check=True)
    subprocess.Popen(["sleep", "612"])
    Path(os.environ["TMPDIR"], "ready").touch()
    time.sleep(60)


def _send_by_pidfd(pid: int, number: int) -> None:
    signal.pidfd_send_signal(os.pidfd_open(pid), number)


@jobs.handle("survivor")
def leave_a_survivor(payload: Payload) -> None:
    for options in ({"start_new_session": True}, {"process_group": 0}):
        with suppress(PermissionError):
            subprocess.Popen(["sleep", "600"], **options)
            raise AssertionError


@jobs.handle("environment")
def read_the_environment(payload: Payload) -> None:
    found = [name for name in payload["names"] if name in os.environ]
    found += [name for name, value in os.environ.items() if "s3cr3t" in value]
    if found or "s3cr3t" in Path("/proc/self/environ").read_text():
        raise AssertionError(found)
    with suppress(PermissionError):
        read = Path(f"/proc/{os.getppid()}/environ").read_text()
        raise AssertionError(len(read))


@jobs.handle("file.kept")
def remove_a_file(payload: Payload) -> None:
    Path(payload["path"]).unlink()


@jobs.handle("file.temporary")
def write_a_file(payload: Payload) -> None:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("a page")


@jobs.handle("slow", policy=Policy(timeout=0.2))
def slow(payload: Payload) -> None:
    time.sleep(60)


@jobs.handle("slow.async", policy=Policy(timeout=0.2))
async def slow_async(payload: Payload) -> None:
    await asyncio.sleep(60)


@jobs.handle("crash")
def crash(payload: Payload) -> None:
    os._exit(3)
