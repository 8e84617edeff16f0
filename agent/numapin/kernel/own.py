"""This process and the machine's memory, as psutil reads them. Must never: look at anybody else's process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnFootprint:
    """Resident memory in bytes, CPU time in seconds since the start, the machine's boot as wall time in seconds."""

    resident_bytes: int
    cpu_seconds: float
    machine_booted_seconds: int


def read_own_footprint() -> OwnFootprint:
    """
    What this process costs now.

    Source: psutil's Process.memory_info, Process.cpu_times and boot_time (``/proc/self``, ``/proc/stat``).
    """
    import psutil  # only the answer to `status` needs it

    process = psutil.Process()
    with process.oneshot():
        times = process.cpu_times()
        return OwnFootprint(process.memory_info().rss, round(times.user + times.system, 3), int(psutil.boot_time()))


def read_machine_memory() -> int:
    """
    Memory of the machine as a whole in bytes, which a virtual machine's nodes need not add up to.

    Source: psutil's virtual_memory (MemTotal of ``/proc/meminfo``).
    """
    import psutil

    return int(psutil.virtual_memory().total)
