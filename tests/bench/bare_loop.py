"""The floor: nothing but inotify on one directory and a write of ``cpuset.mems`` into each child that appears."""

from __future__ import annotations

import os
import sys

from inotify_simple import INotify, flags


def main(parent: str, mems_file: str, nodes: str) -> None:
    """Serve for ever; prints one line when ready."""
    inotify = INotify()
    inotify.add_watch(parent, flags.CREATE | flags.ONLYDIR)
    print("ready", flush=True)
    while True:
        for event in inotify.read():
            fd = os.open(f"{parent}/{event.name}/{mems_file}", os.O_WRONLY)
            os.write(fd, nodes.encode())
            os.close(fd)


if __name__ == "__main__":
    main(*sys.argv[1:])
