"""A daemon's socket that gives one prepared answer to each request."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def answering(path: Path, result: Mapping[str, object]) -> Iterator[list[str]]:
    """Answer on the socket *path* while the block runs; yields the verbs that were asked."""
    asked: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                with connection:
                    line = connection.makefile("rb").readline()
                    if not line:
                        return
                    asked.append(json.loads(line)["verb"])
                    answer = {"apiVersion": "numapin/v1", "kind": "Answer", "result": result}
                    connection.sendall(json.dumps(answer).encode() + b"\n")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield asked
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as last:
                last.connect(str(path))  # an empty request ends the server
            thread.join(10)
