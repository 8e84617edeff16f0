"""How long from a cgroup's creation to its nodes: the daemon beside the barest possible loop, and a burst of 500."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from inotify_simple import INotify, flags

from bench.harness import Daemon, Tree, daemon, dump, judge, median, tree, wait_until

ROUNDS = 60
BURST = 500
TMPFS = Path("/dev/shm")


def _one(trees: Tree, name: str, mems_file: str) -> float:
    """Milliseconds from mkdir to the write of the container's mems, as an inotify watch on the file sees it."""
    trees.prepare(name)
    inotify = INotify()
    try:
        began = time.perf_counter()
        path = trees.appear(name)
        inotify.add_watch(str(path / mems_file), flags.MODIFY)
        while not (path / mems_file).read_text().strip():
            select.select([inotify.fileno()], [], [], 2.0)
            if time.perf_counter() - began > 5:
                raise TimeoutError(f"{path} was not granted within 5 s")
        return (time.perf_counter() - began) * 1000
    finally:
        inotify.close()
        trees.vanish(name)


def _series(trees: Tree, salt: int, mems_file: str) -> list[float]:
    found = []
    for name in trees.names(ROUNDS, salt):
        found.append(_one(trees, name, mems_file))
        time.sleep(0.02)
    return found


def _fsync_pair_ms(parent: Path | None) -> float:
    """Median of one file's and one directory's fsync on the disk under *parent*, milliseconds."""
    taken = []
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        directory = os.open(folder, os.O_RDONLY)
        for n in range(ROUNDS):
            fd = os.open(f"{folder}/{n}", os.O_WRONLY | os.O_CREAT)
            os.write(fd, b"x" * 4096)
            began = time.perf_counter()
            os.fsync(fd)
            os.fsync(directory)
            taken.append((time.perf_counter() - began) * 1000)
            os.close(fd)
        os.close(directory)
    return median(taken)


def _bare(trees: Tree, mems_file: str) -> list[float]:
    nodes = (trees.cpuset / ("cpuset.mems" if trees.is_v1 else "cpuset.mems.effective")).read_text().strip()
    argv = [sys.executable, str(Path(__file__).with_name("bare_loop.py")), str(trees.cpuset), mems_file, nodes]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as loop:
        assert loop.stdout is not None
        loop.stdout.readline()
        try:
            return _series(trees, 1, mems_file)
        finally:
            loop.kill()


def single() -> int:
    """Print the medians and their ratio; 1 when the limit is not held."""
    with tree() as trees:
        bare = median(_bare(trees, "cpuset.mems"))
        with daemon(TMPFS if TMPFS.is_dir() else None) as fast:
            fast.start()
            without = median(_series(trees, 2, "cpuset.mems"))
        with daemon() as real:
            real.start()
            disk = median(_series(trees, 3, "cpuset.mems"))
    pair = _fsync_pair_ms(None)
    print("cgroup appears -> cpuset.mems granted, median of", ROUNDS)
    print(f"  bare inotify-and-write loop       {bare:7.2f} ms")
    print(f"  numapin, checkpoint on tmpfs      {without:7.2f} ms   {without / bare:5.1f} x the bare loop")
    print(f"  numapin, checkpoint on disk       {disk:7.2f} ms   the disk's two fsyncs alone: {pair:.2f} ms")
    beyond = max(0.0, disk - pair)
    print(f"  beyond the two fsyncs             {beyond:7.2f} ms   to hold: below 3 ms")
    dump("grant", {"bare_ms": bare, "tmpfs_ms": without, "disk_ms": disk, "fsync_pair_ms": pair, "beyond_ms": beyond})
    return judge(("beyond the two fsyncs, ms", beyond, 3))


def _all(it: Daemon, count: int) -> Callable[[], bool]:
    return lambda: it.pinned() >= count


def burst() -> int:
    """Print how long 500 containers at once take, and how many checkpoints that cost; 1 when it takes too long."""
    with tree() as trees, daemon() as it:
        names = trees.names(BURST, 4)
        for name in names:
            trees.prepare(name)
        it.start()
        saves = it.status()["counters"]["saves"]
        began = time.perf_counter()
        paths = [trees.appear(name) for name in names]
        made = time.perf_counter() - began
        wait_until(lambda: all((p / "cpuset.mems").read_text().strip() for p in paths), limit_s=60)
        took = time.perf_counter() - began
        wait_until(_all(it, BURST), limit_s=60)
        saves = it.status()["counters"]["saves"] - saves
        for name in names:
            trees.vanish(name)
        with suppress(TimeoutError):
            wait_until(lambda: it.pinned() == 0, limit_s=30)
        left = it.pinned()
    print(f"burst of {BURST} containers")
    print(f"  all granted after                 {took:7.2f} s    to hold: below 3 s (making them took {made:.2f} s)")
    print(f"  checkpoints saved                 {saves:7d}      left after removal: {left}")
    dump("burst", {"count": BURST, "granted_s": took, "made_s": made, "saves": saves, "left": left})
    return judge(("all granted after, s", took, 3))
