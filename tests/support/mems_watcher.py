"""
Writes down each change of some ``cpuset.mems``; runs in the guest, as one program.

Arguments: the log, then the files. One JSON line per value seen, ``{"at": seconds, "file": …, "mems": …}``, the
first values too. The kernel wakes it when a file is written (IN_MODIFY); beside that it looks every 50 ms.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.append("/usr/lib/numapin/python")

from inotify_simple import INotify, flags

LOOK_MS = 50


def main(log: str, *files: str) -> None:
    """Watch until killed."""
    watch = INotify()
    for path in files:
        watch.add_watch(path, flags.MODIFY)
    last: dict[str, str] = {}
    with Path(log).open("w", buffering=1) as out:
        while True:
            for path in files:
                descriptor = os.open(path, os.O_RDONLY)
                value = os.read(descriptor, 4096).decode().strip()
                os.close(descriptor)
                if last.get(path) != value:
                    last[path] = value
                    out.write(json.dumps({"at": time.monotonic(), "file": path, "mems": value}) + "\n")
            watch.read(timeout=LOOK_MS)


if __name__ == "__main__":
    main(*sys.argv[1:])
