"""One daemon at a time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from numapin.model.errors import AlreadyRunning, NotPermitted, SocketUnusable
from numapin.state.lock import DaemonLock, state_lock
from support.privilege import public_directory, unprivileged


def test_second_daemon(tmp_path: Path) -> None:
    """A second lock on the same file says who holds the first."""
    path = tmp_path / "run" / "lock"
    with DaemonLock(path):
        with pytest.raises(AlreadyRunning) as caught, DaemonLock(path):
            pass

        assert (os.getpid(), str(path)) == (caught.value.pid, caught.value.path)
        assert f"process {os.getpid()}" in str(caught.value)


def test_free_again(tmp_path: Path) -> None:
    """A lock that was given back can be taken, also when its file still names a longer process id."""
    path = tmp_path / "lock"
    path.write_text("123456789012\n")
    for _ in range(2):
        with DaemonLock(path):
            assert f"{os.getpid()}\n" == path.read_text()


def test_holder_was_killed(tmp_path: Path) -> None:
    """The lock of a process that was killed is free at once."""
    path = tmp_path / "lock"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with DaemonLock(path):
            os.write(writer, b"x")
            signal.pause()
        os._exit(1)
    assert os.read(reader, 1) == b"x"
    with pytest.raises(AlreadyRunning) as caught, DaemonLock(path):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)

    assert child == caught.value.pid
    with DaemonLock(path):
        assert f"{os.getpid()}\n" == path.read_text()


def test_holder_without_a_number(tmp_path: Path) -> None:
    """A holder that has not written its process id yet is another process."""
    path = tmp_path / "lock"
    with DaemonLock(path):
        path.write_text("soon")
        with pytest.raises(AlreadyRunning) as caught, DaemonLock(path):
            pass

    assert caught.value.pid == 0
    assert "another process" in str(caught.value)


def test_a_state_beside_the_socket(tmp_path: Path) -> None:
    """Where the state directory is the socket's, one file is both locks, taken once; a second daemon is refused."""
    path = tmp_path / "lock"
    with DaemonLock(path), state_lock(tmp_path, besides=path):
        with pytest.raises(AlreadyRunning), DaemonLock(path):
            pass
        with pytest.raises(AlreadyRunning), state_lock(tmp_path):
            pass


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 2_100])
def test_a_name_too_long(tmp_path: Path, name: str) -> None:
    """A path that no file can have is an error with its reason."""
    with pytest.raises(SocketUnusable, match="ENAMETOOLONG"), DaemonLock(tmp_path / name / "lock"):
        pass
    with state_lock(tmp_path / name):
        pass


def test_symbolic_link(tmp_path: Path) -> None:
    """A symbolic link in place of the lock is not followed."""
    path = tmp_path / "lock"
    target = tmp_path / "target"
    target.write_text("precious")
    path.symlink_to(target)

    with pytest.raises(SocketUnusable, match="symbolic link"), DaemonLock(path):
        pass
    assert target.read_text() == "precious"


def test_symbolic_link_in_place_of_the_directory(tmp_path: Path) -> None:
    """A link in place of the lock's directory is not followed either: nothing is written where it leads."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "lock").write_text("precious")
    (tmp_path / "numapin").symlink_to(victim)

    with (
        pytest.raises(SocketUnusable, match=f"{tmp_path}/numapin is a symbolic link, which is not followed"),
        DaemonLock(tmp_path / "numapin/lock"),
    ):
        pass
    assert (victim / "lock").read_text() == "precious"


def test_not_permitted() -> None:
    """A user without rights is told to be root."""
    with public_directory() as directory:
        path = directory / "lock"
        with DaemonLock(path):
            pass
        path.chmod(0o600)
        with unprivileged():
            if os.geteuid() == path.stat().st_uid:
                path.chmod(0)
            with pytest.raises(NotPermitted, match="must run as root"), DaemonLock(path):
                pass


def test_one_writer_of_a_checkpoint(tmp_path: Path) -> None:
    """The state directory has a lock of its own, whatever sockets two daemons have."""
    state = tmp_path / "var/lib/numapin"
    with state_lock(state, create=True):
        with pytest.raises(AlreadyRunning) as caught, state_lock(state):
            pass

        assert caught.value.path == str(state / "lock")
    with state_lock(state):
        pass


def test_where_nothing_can_be_saved_nothing_is_locked(tmp_path: Path) -> None:
    """No directory, or a link in its place: nothing is made, here or behind the link, and it is no error."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "link").symlink_to(elsewhere)
    with state_lock(tmp_path / "missing"), state_lock(tmp_path / "link", create=True):
        assert list(elsewhere.iterdir()) == []
        assert not (tmp_path / "missing").exists()
