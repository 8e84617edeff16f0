"""
Writes down each change of the nodes' books; runs in the guest, as one program.

Argument: the log. One JSON line per NodeMap seen in ``status``, ``{"at": monotonic seconds, "total": {node: bytes}}``
of memory. It asks every 50 ms, so a time in it is late by that and an answer.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from numapin.cli.client import request

LOOK_S = 0.05


def main(log: str) -> None:
    """Watch until killed."""
    last = None
    with Path(log).open("w", buffering=1) as out:
        while True:
            status: Any = request("/run/numapin/api.sock", "status")
            total = {node["id"]: node["memory_map"]["memory"]["total"] for node in status["nodes"]}
            if total != last:
                last = total
                out.write(json.dumps({"at": time.monotonic(), "total": total}) + "\n")
            time.sleep(LOOK_S)


if __name__ == "__main__":
    main(sys.argv[1])
