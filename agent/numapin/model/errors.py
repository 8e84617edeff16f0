"""
The error tree. Constructors take facts, ``__str__`` makes the sentence, ``code`` is stable.

    NumapinError
      ConfigError            one or more problems in configuration files       exit 6
      KernelError
        KernelReadError      a kernel file cannot be read                      exit 1
        KernelWriteError     the kernel refused a write                        exit 1
        CpusetNotEnabled     +cpuset was not taken above a container           exit 1
        KernelFormatError    a kernel file has unexpected content              exit 1
        CgroupGone           the cgroup vanished (normal; the caller drops it)
        NoCpusetController   no cpuset controller anywhere                     exit 1
          PartOfCgroupTree   only one branch of the machine's cgroups is seen  exit 1
        KubeletStateUnusable the kubelet's state file cannot be believed       exit 1
      CheckpointError
        CheckpointCorrupt    not JSON, wrong checksum, wrong shape             exit 1
        CheckpointWrongVersion                                                 exit 1
        CheckpointUnwritable the file cannot be saved                          exit 1
        CheckpointUnreadable the file is there and cannot be read              exit 1
      NotRunning             no daemon answers                                 exit 3
      NoAnswer               a daemon is there and gives no answer in time     exit 1
      AlreadyRunning         another daemon holds the state                    exit 1
      NotPermitted           root needed                                       exit 4
      SocketUnusable         the API socket cannot be made                     exit 1
      SystemdError           systemd did not do what it was asked over D-Bus   exit 1
        SystemdAbsent        no systemd, or no bus to reach it by              exit 1
        NoSuchUnit           systemd knows no unit of that name                exit 1
      RequestFailed          the daemon answered with an error                 its own
      InvariantError         our own bug; the daemon ends and restarts         exit 1
"""

from __future__ import annotations

import errno as _errno
import os
from enum import IntEnum


class ExitStatus(IntEnum):
    """Exit codes of every ``numapin`` command."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_RUNNING = 3
    NO_PERMISSION = 4
    DOES_NOT_FIT = 5
    CONFIG = 6


class NumapinError(Exception):
    """Base of every error numapin raises on purpose."""

    code = "error"
    exit_status = ExitStatus.FAILURE


class ConfigError(NumapinError):
    """Every problem found in the configuration, each ``(file, key, sentence)``."""

    code = "config-wrong"
    exit_status = ExitStatus.CONFIG

    def __init__(self, problems: tuple[tuple[str, str, str], ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        lines = [f"{file}: {key}: {what}" if key else f"{file}: {what}" for file, key, what in self.problems]
        return "configuration wrong:\n  " + "\n  ".join(lines)


class KernelError(NumapinError):
    """Something between us and the kernel; *path* is the kernel file."""

    code = "kernel-error"

    def __init__(self, path: str, errno: int = 0) -> None:
        super().__init__(path, errno)
        self.path = path
        self.errno = errno

    def _reason(self) -> str:
        name = _errno.errorcode.get(self.errno, str(self.errno))
        return f"{os.strerror(self.errno)} ({name})"


class KernelReadError(KernelError):
    """A kernel file cannot be read."""

    code = "kernel-read"

    def __str__(self) -> str:
        return f"cannot read {self.path}: {self._reason()}"


class KernelWriteError(KernelError):
    """The kernel refused to take *text* into *path*."""

    code = "kernel-write"

    def __init__(self, path: str, errno: int, text: str) -> None:
        super().__init__(path, errno)
        self.args = (path, errno, text)
        self.text = text

    def __str__(self) -> str:
        hint = _WRITE_HINTS.get(self.errno, "")
        return f"cannot write {self.text!r} to {self.path}: {self._reason()}" + (f"; {hint}" if hint else "")


_WRITE_HINTS = {
    _errno.EINVAL: "the kernel does not know one of these nodes, or it has no memory",
    _errno.ENOSPC: "a populated cgroup cannot be left without nodes (this is not about disk space)",
    _errno.EACCES: "on cgroup v1 the nodes must be a subset of the parent's cpuset.mems",
    _errno.EBUSY: "a child cgroup still uses nodes that the new value leaves out",
    _errno.EROFS: "the cgroup file system is mounted read-only; mount it read-write for numapin",
    _errno.EPERM: "numapin must run as root, outside a container",
}


class CpusetNotEnabled(KernelError):
    """
    The kernel did not take ``+cpuset`` in *path*, a ``cgroup.subtree_control``. *of_root*: it was not tried, for the
    file is that of the hierarchy's root.
    """

    code = "cpuset-not-enabled"

    def __init__(self, path: str, errno: int, *, of_root: bool = False) -> None:
        super().__init__(path, errno)
        self.of_root = of_root

    def __str__(self) -> str:
        if self.of_root:
            return (
                f"cpuset is not enabled in {self.path}, the root of the hierarchy; there it would reset the CPU "
                f"affinity of every process on the host, so numapin leaves it to you: echo +cpuset > {self.path}"
            )
        remedy = _ENABLE_REMEDIES.get(self.errno, f"remedy: echo +cpuset > {self.path}")
        return f"cpuset cannot be enabled in {self.path}: {self._reason()}; {remedy}"


_ENABLE_REMEDIES = {
    _errno.EBUSY: (
        "processes live in that cgroup itself, and only a cgroup without any can enable it; remedy: move them into a "
        "child cgroup, or start the container below a slice without processes of its own"
    ),
    _errno.EOPNOTSUPP: "that part of the tree is threaded, where cpuset cannot be enabled for processes",
    _errno.ENOENT: "the kernel does not offer cpuset there; remedy: enable it in the cgroup above first",
    _errno.EACCES: "remedy: let numapin run as root and write below /sys/fs/cgroup",
    _errno.EPERM: "remedy: let numapin run as root, outside a container",
    _errno.EROFS: "the cgroup file system is mounted read-only; remedy: mount it read-write for numapin",
}


class KernelFormatError(KernelError):
    """A kernel file has content that no reader of ours understands."""

    code = "kernel-format"

    def __init__(self, path: str, text: str, expected: str) -> None:
        super().__init__(path)
        self.text = text[:_SHOWN_CHARS]
        self.args = (path, self.text, expected)
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, found {self.text[:120]!r}"


_SHOWN_CHARS = 4096
"""Of a file that nobody understands; an error may be kept for as long as the file stays."""


class CgroupGone(KernelError):
    """The cgroup vanished between two steps; normal for short-lived containers."""

    code = "cgroup-gone"

    def __str__(self) -> str:
        return f"cgroup {self.path} is gone"


class NoCpusetController(KernelError):
    """No mounted cgroup hierarchy carries the cpuset controller; *detail* says what was looked at."""

    code = "no-cpuset"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(path)
        self.args = (path, detail)
        self.detail = detail

    def __str__(self) -> str:
        return (
            f"no cpuset controller under {self.path}: {self.detail}; "
            "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1) or mount the v1 cpuset controller"
        )


class PartOfCgroupTree(NoCpusetController):
    """The cpuset hierarchy is mounted from one of its branches on: the machine's containers are not all seen."""

    code = "part-of-cgroup-tree"

    def __str__(self) -> str:
        return (
            f"{self.detail}: containers elsewhere would not be seen, and paths that runtimes tell mean other "
            "cgroups; start numapin on the host itself, or in a container with the host's cgroup namespace and its "
            "/sys/fs/cgroup (docker run --cgroupns=host -v /sys/fs/cgroup:/sys/fs/cgroup)"
        )


class KubeletStateUnusable(KernelError):
    """The kubelet's memory manager state is there, but nobody can say what is in it."""

    code = "kubelet-state"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(path)
        self.args = (path, detail)
        self.detail = detail

    def __str__(self) -> str:
        return f"the kubelet's state {self.path} is not usable: {self.detail}"


class CheckpointError(NumapinError):
    """Something about the checkpoint file *path*."""

    code = "checkpoint"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        return f"checkpoint {self.path}: {self.detail}"


class CheckpointCorrupt(CheckpointError):
    """The file is there but cannot be believed."""

    code = "checkpoint-corrupt"


class CheckpointWrongVersion(CheckpointError):
    """The file's schema version is not one this program reads."""

    code = "checkpoint-version"


class CheckpointUnwritable(CheckpointError):
    """The file cannot be saved; nothing was written to any cgroup."""

    code = "checkpoint-unwritable"


class CheckpointUnreadable(CheckpointError):
    """The file is there, but nobody can say what is in it: not permitted, an I/O error, a symbolic link."""

    code = "checkpoint-unreadable"


class NotRunning(NumapinError):
    """No daemon answers on *socket*. How to start one depends on the host: `cli.starting` says it."""

    code = "not-running"
    exit_status = ExitStatus.NOT_RUNNING

    def __init__(self, socket: str, detail: str) -> None:
        super().__init__(socket, detail)
        self.socket = socket
        self.detail = detail

    def __str__(self) -> str:
        return f"no numapin daemon answers on {self.socket} ({self.detail})"


class NoAnswer(NumapinError):
    """A daemon holds *socket*, but did not answer within *timeout_s* seconds."""

    code = "no-answer"

    def __init__(self, socket: str, timeout_s: float) -> None:
        super().__init__(socket, timeout_s)
        self.socket = socket
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return (
            f"{self.socket}: a numapin daemon is there and gave no answer within {self.timeout_s:g} s; it is busy or "
            "hangs: try again, and look at: journalctl -u numapin"
        )


class AlreadyRunning(NumapinError):
    """Another daemon holds the lock *path*; *pid* is 0 when it did not say."""

    code = "already-running"

    def __init__(self, path: str, pid: int) -> None:
        super().__init__(path, pid)
        self.path = path
        self.pid = pid

    def __str__(self) -> str:
        who = f"process {self.pid}" if self.pid else "another process"
        return f"numapin is already running: {who} holds {self.path}; stop it first (systemctl stop numapin)"


class NotPermitted(NumapinError):
    """*what* needs a right this process does not have."""

    code = "not-permitted"
    exit_status = ExitStatus.NO_PERMISSION

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return self.what


class SocketUnusable(NumapinError):
    """The API socket *path* cannot be made; *detail* says what is in the way and what to do."""

    code = "socket-unusable"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        return f"cannot listen on {self.path}: {self.detail}"


class SystemdError(NumapinError):
    """systemd did not do, or say, what it was asked about *unit* over D-Bus; *detail* says what came instead."""

    code = "systemd"

    def __init__(self, unit: str, detail: str) -> None:
        super().__init__(unit, detail)
        self.unit = unit
        self.detail = detail

    def __str__(self) -> str:
        return f"systemd, asked about {self.unit}: {self.detail}"


class SystemdAbsent(SystemdError):
    """There is no systemd here, or no system bus to reach it by; normal on some machines."""

    code = "systemd-absent"


class SystemdTooOld(SystemdAbsent):
    """systemd does not know the property, so for this machine it is as good as absent; before 244, less backports."""


class NoSuchUnit(SystemdError):
    """systemd has no unit of that name loaded: the cgroup was made by somebody else, or is gone."""

    code = "no-such-unit"


class RequestFailed(NumapinError):
    """The daemon answered a request with an error; *code*, *message* and *exit_status* are its own."""

    def __init__(self, code: str, message: str, exit_status: ExitStatus = ExitStatus.FAILURE) -> None:
        super().__init__(code, message, exit_status)
        self.code = code
        self.message = message
        self.exit_status = exit_status

    def __str__(self) -> str:
        return self.message


class InvariantError(NumapinError):
    """A rule that our own code must keep does not hold; *facts* say which."""

    code = "invariant"

    def __init__(self, facts: str) -> None:
        super().__init__(facts)
        self.facts = facts

    def __str__(self) -> str:
        return f"internal error, please report: {self.facts}"
