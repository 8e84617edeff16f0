"""The lines of the API.

Owns: the one form of requests and answers. Must never: touch a socket.

Request: ``{"apiVersion":"numapin/v1","verb":"status","params":{}}`` and a line end. Answer: one line,
``{"apiVersion":"numapin/v1","kind":"Answer","result":…}`` or
``{"apiVersion":…,"kind":"Error","code":…,"message":…,"exit":N}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from numapin import API_VERSION
from numapin.model.errors import ExitStatus, NumapinError, RequestFailed


class UnknownVerb(RequestFailed):
    """A handler has no such *verb*."""

    def __init__(self, verb: str) -> None:
        super().__init__(
            "unknown-verb",
            f"this daemon knows no request {verb[:60]!r}; is it older than the command?",
            ExitStatus.USAGE,
        )


def parse_request(line: bytes) -> tuple[str, Mapping[str, object]]:
    """Verb and parameters of one request line. Raises: RequestFailed."""
    try:
        request = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        raise RequestFailed("bad-request", f"the request is not JSON: {exc}", ExitStatus.USAGE) from exc
    if not isinstance(request, dict):
        raise RequestFailed("bad-request", "the request is not a JSON object", ExitStatus.USAGE)
    version, verb, params = request.get("apiVersion"), request.get("verb"), request.get("params", {})
    if version != API_VERSION:
        shown = repr(version)[:60]
        raise RequestFailed(
            "bad-version", f"apiVersion: this daemon speaks {API_VERSION}, not {shown}", ExitStatus.USAGE
        )
    if not isinstance(verb, str) or not isinstance(params, dict):
        raise RequestFailed("bad-request", "verb must be text and params an object", ExitStatus.USAGE)
    return verb, params


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is no JSON number")


def _line(body: Mapping[str, object]) -> bytes:
    """One line of pure ASCII JSON."""
    return json.dumps({"apiVersion": API_VERSION, **body}).encode() + b"\n"


def encode_result(result: object) -> bytes:
    """Answer with a handler's *result*. Raises: TypeError when it is not plain JSON data."""
    return _line({"kind": "Answer", "result": result})


def encode_error(error: NumapinError) -> bytes:
    """Answer with an error's code, sentence and exit status."""
    return _line({"kind": "Error", "code": error.code, "message": str(error), "exit": int(error.exit_status)})
