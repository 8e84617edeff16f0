"""Ends a process with SIGKILL right after a chosen system call, in a child, so that nothing is cleaned up."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

CHANGES = {
    "state/checkpoint.py": frozenset({"open", "fchmod", "write", "fsync", "link", "rename", "unlink", "mkdir"}),
    "kernel/files.py": frozenset({"write"}),
}
"""
Functions of ``os``, by the module that calls them, after which files may be others than before: the checkpoint's,
and a cgroup's. A kill anywhere between two of these calls is the same kill.
"""


class KillAfter:
    """A profile function that counts the calls in `CHANGES` and kills after number *at*; ``None`` never kills."""

    def __init__(self, at: int | None) -> None:
        self.count = 0
        self._at = at

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        """See `sys.setprofile`."""
        if event != "c_return" or getattr(arg, "__module__", None) != "posix":
            return
        module = "/".join(frame.f_code.co_filename.rsplit("/", 2)[-2:])
        if getattr(arg, "__name__", "") in CHANGES.get(module, ()):
            self.count += 1
            if self.count == self._at:
                os.kill(os.getpid(), signal.SIGKILL)


def run_and_kill(step: Callable[[], object], *, at: int) -> bool:
    """
    Run *step* in a child and kill it after its *at*-th change; 0 is before anything.

    Returns True when the child was killed, False when *step* was over before. Fails when the child fails.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if at == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            sys.setprofile(KillAfter(at))
            step()
            sys.setprofile(None)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert signal.SIGKILL == os.WTERMSIG(status)
        return True
    assert os.WEXITSTATUS(status) == 0, "the step failed in the child"
    return False


def changes_of(step: Callable[[], object]) -> int:
    """How many changes *step* makes in this process."""
    counter = KillAfter(None)
    sys.setprofile(counter)
    try:
        step()
    finally:
        sys.setprofile(None)
    return counter.count
