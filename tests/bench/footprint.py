"""Memory and CPU of the idle daemon, its restart, and ``status`` beside bare python3."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from bench.harness import daemon, dump, judge, median, tree, wait_until

IDLE_CONTAINERS = 200
IDLE_S = 122
RESTART_CONTAINERS = 500
STARTS = 21


def idle() -> int:
    """Print resident memory and CPU share of a daemon with 200 containers and nothing to do; 1 when above a limit."""
    with tree() as trees, daemon() as it:
        it.start()
        for name in trees.names(IDLE_CONTAINERS, 5):
            trees.prepare(name)
            trees.appear(name)
        wait_until(lambda: it.pinned() >= IDLE_CONTAINERS, limit_s=30)
        assert it.process is not None
        process = psutil.Process(it.process.pid)
        time.sleep(5)  # second looks and the last save are over
        before, began = process.cpu_times(), time.monotonic()
        time.sleep(IDLE_S)
        after, seconds = process.cpu_times(), time.monotonic() - began
        used = after.user + after.system - before.user - before.system
        memory = process.memory_full_info()
    share = used / seconds * 100
    print(f"idle daemon with {IDLE_CONTAINERS} containers, over {seconds:.0f} s (one slow pass included)")
    print(f"  resident memory                   {memory.rss / 2**20:7.1f} MiB  to hold: below 40 MiB")
    print(f"  of it not shared                  {memory.uss / 2**20:7.1f} MiB")
    print(f"  CPU of one core                   {share:7.3f} %    to hold: below 0.1 %")
    dump("idle", {"rss_bytes": memory.rss, "uss_bytes": memory.uss, "cpu_percent": share})
    return judge(("resident memory, MiB", memory.rss / 2**20, 40), ("CPU of one core, %", share, 0.1))


def restart() -> int:
    """Print how long a restart with 500 containers takes to READY, and what it wrote; 1 when above a limit."""
    with tree() as trees, daemon() as it:
        names = trees.names(RESTART_CONTAINERS, 6)
        for name in names:
            trees.prepare(name)
            trees.appear(name)
        it.start()
        wait_until(lambda: it.pinned() >= RESTART_CONTAINERS, limit_s=60)
        it.stop()
        seconds = it.start()
        pinned, writes = it.pinned(), it.status()["counters"]["writes"]
    print(f"restart with {RESTART_CONTAINERS} containers")
    print(f"  to READY                          {seconds:7.2f} s    to hold: below 2 s")
    print(f"  pinned {pinned}, cgroups written {writes}    to hold: none written")
    dump("restart", {"ready_s": seconds, "pinned": pinned, "writes": writes})
    return judge(("to READY, s", seconds, 2), ("cgroups written", writes, 1))


def status() -> int:
    """
    Print the wall time of ``numapin status`` beside ``python3 -c pass`` of the same interpreter; 1 when above it.

    Both with their compiled modules on disk, as any installation has them.
    """
    cached = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with daemon() as it:
        it.start()
        ask = [str(Path(sys.executable).with_name("numapin")), "status", "--socket", str(it.socket)]
        commands = {
            "python3 -c pass": [sys.executable, "-c", "pass"],
            "numapin status -o json": [*ask, "-o", "json"],
            "numapin status": ask,
        }
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(STARTS):
            for name, argv in commands.items():
                began = time.perf_counter()
                subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=cached)
                taken[name].append((time.perf_counter() - began) * 1000)
    bare = median(taken["python3 -c pass"])
    print(f"status, median of {STARTS} interleaved runs   to hold: below 3 x bare python3")
    for name, values in taken.items():
        print(f"  {name:<33} {median(values):7.1f} ms   {median(values) / bare:4.1f} x")
    dump("status", {name: median(values) for name, values in taken.items()})
    return judge(("numapin status, times bare python3", median(taken["numapin status"]) / bare, 3))
