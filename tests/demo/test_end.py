"""A demo leaves nothing behind, however it ends."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from redrive.errors import Busy
from redrive.extras.demo.home import open_home
from tests.demo.conftest import SECONDS, Place, read_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("demo")]


@pytest.mark.parametrize(
    ("how", "after"),
    [
        pytest.param(signal.SIGINT, "A shop books payments", id="Ctrl-C at once"),
        pytest.param(
            signal.SIGTERM, "Postgres 18 serves", id="SIGTERM", marks=pytest.mark.long
        ),
        pytest.param(
            signal.SIGHUP, "worker are up", id="closed terminal", marks=pytest.mark.long
        ),
        pytest.param(signal.SIGKILL, "worker are up", id="kill -9"),
    ],
)
def test_nothing_is_left_of_a_demo_that_is_stopped_in_the_middle(
    place: Place, how: signal.Signals, after: str
):
    process = place.start()
    read_until(process, after)

    process.send_signal(how)
    process.communicate(timeout=SECONDS)

    assert process.returncode == (-signal.SIGKILL if how == signal.SIGKILL else 0)
    assert place.what_is_left() == []


def test_a_second_demo_gets_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with open_home(None) as first, open_home(None) as second:
        assert first != second
        (second / "a file").touch()

    assert list(tmp_path.iterdir()) == []


def test_the_end_of_a_demo_leaves_the_directory_of_the_next_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def run(n: int) -> None:
        with open_home(None) as home:
            (home / "secret").touch()
            time.sleep(n % 4 / 100)
            assert [file.name for file in sorted(home.iterdir())] == ["lock", "secret"]

    with ThreadPoolExecutor(4) as demos:
        list(demos.map(run, range(200)))

    assert list(tmp_path.iterdir()) == []


def test_two_demos_cannot_keep_the_same_directory(tmp_path: Path):
    chosen = tmp_path / "kept"

    with (
        open_home(chosen) as home,
        pytest.raises(Busy, match="another demo runs in"),
        open_home(chosen),
    ):
        pass

    assert home == chosen
    assert chosen.exists()


@pytest.mark.long
def test_what_a_demo_left_that_was_killed_with_its_guard_is_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "redrive-demo"
    left.mkdir()
    for name in ("lock", "env", "secret"):
        (left / name).touch()

    with open_home(None) as home:
        assert home == left
        assert [file.name for file in home.iterdir()] == ["lock"]


def test_a_directory_of_somebody_else_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "redrive-demo").symlink_to(elsewhere)

    with open_home(None) as home:
        assert home.name.startswith("redrive-demo-")

    assert list(elsewhere.iterdir()) == []
