"""
Writes down each change of the nodes' books and the containers' states; runs in the guest, as one program.

Argument: the log. One JSON line per change seen in ``status``: ``{"at": monotonic seconds, "total": {node: bytes}}``
of memory and ``"states": {name: state}``. It asks every 50 ms, so a time in it is late by that and an answer. While
the service is being restarted nobody answers, and nothing is written.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from numapin.cli.client import request
from numapin.model.errors import NumapinError

LOOK_S = 0.05


def main(log: str) -> None:
    """Watch until killed."""
    last = None
    with Path(log).open("w", buffering=1) as out:
        while True:
            try:
                status: Any = request("/run/numapin/api.sock", "status")
            except NumapinError:
                time.sleep(LOOK_S)
                continue
            total = {node["id"]: node["memory_map"]["memory"]["total"] for node in status["nodes"] if node["used"]}
            states = {row["name"]: row["state"] for row in status["containers"]}
            if (total, states) != last:
                last = total, states
                out.write(json.dumps({"at": time.monotonic(), "total": total, "states": states}) + "\n")
            time.sleep(LOOK_S)


if __name__ == "__main__":
    main(sys.argv[1])
