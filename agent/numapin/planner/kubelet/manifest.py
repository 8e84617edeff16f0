"""
A Kubernetes Pod manifest, already read from JSON or YAML, as the kubelet's managers see it.

Owns: which keys count, and a sentence for each value that the API server would not take. Must never: read a file.

Source: the Pod type of the core/v1 API and its validation rules (resource quantities, hugepages, unique names).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from reprlib import Repr
from typing import Any

from numapin.model.container import QosClass
from numapin.model.quantity import MAX_BYTES, parse_page_size, parse_quantity
from numapin.planner.kubelet.pods import Pod, PodContainer

HUGEPAGES = "hugepages-"
SHOWN = 60
"""Characters of a wrong value that a message repeats."""
MAX_CONTAINERS = 500
"""More containers than any pod has; for each the nodes are searched."""


class ManifestError(ValueError):
    """The manifest is not a Pod that the API server would take; *key* is where, *what* a sentence."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(key, what)
        self.key = key
        self.what = what

    def __str__(self) -> str:
        return f"{self.key}: {self.what}" if self.key else self.what


@dataclass(frozen=True, slots=True)
class Manifest:
    """A pod and its name (``namespace/name``, or what there is of it)."""

    name: str
    pod: Pod


def parse_pod(document: object, *, uid: str) -> Manifest:
    """
    The pod that a manifest describes, under *uid* whatever the manifest says.

    The class is the one in ``status``, if any, else computed; pod-level resources decide it where they are set.
    Resources other than CPU, memory and hugepages are left out, and so are ephemeral containers.

    Raises:
        ManifestError: Not a Pod, or a value that the API server refuses.
    """
    top = _mapping(document, "", required=True)
    kind = top.get("kind")
    if kind != "Pod":
        more = "; take the pod out of its template" if "template" in _mapping(top.get("spec"), "spec") else ""
        raise ManifestError("kind", f"this is {_shown(kind)}, not a Pod{more}")
    spec = _mapping(top.get("spec"), "spec", required=True)
    containers = tuple(_containers(spec))
    names = [c.name for c in containers]
    for name in names:
        if names.count(name) > 1:
            raise ManifestError("spec.containers", f"two containers are named {_shown(name)}")
    level = _resources(spec.get("resources"), "spec.resources")
    has_level = bool(level[0] or level[1])
    qos = _status_class(top)
    if qos is None and has_level:
        # One container with the pod's lists has the class that the lists alone give.
        qos = Pod("", (PodContainer("pod", *level),)).qos_class()
    meta = _mapping(top.get("metadata"), "metadata")
    name = "/".join(_word(meta[k]) for k in ("namespace", "name") if meta.get(k))
    return Manifest(name or _word(meta.get("generateName") or "pod"), Pod(uid, containers, qos, has_level))


def _word(value: object) -> str:
    return value if isinstance(value, str) else _shown(value)


def _containers(spec: Mapping[str, Any]) -> Iterator[PodContainer]:
    """Init containers first, then app containers, in order."""
    for key, init in (("initContainers", True), ("containers", False)):
        entries = spec.get(key)
        if entries is None and init:
            continue
        if not isinstance(entries, list) or not (entries or init):
            raise ManifestError(f"spec.{key}", "must be a list of containers, and not empty")
        if len(entries) > MAX_CONTAINERS:
            raise ManifestError(f"spec.{key}", f"{len(entries)} containers are more than {MAX_CONTAINERS}")
        for k, entry in enumerate(entries):
            where = f"spec.{key}[{k}]"
            body = _mapping(entry, where, required=True)
            name = body.get("name")
            if not isinstance(name, str) or not name:
                raise ManifestError(f"{where}.name", f"must be a name, not {_shown(name)}")
            requests, limits = _resources(body.get("resources"), f"{where}.resources")
            yield PodContainer(name, requests, limits, init, init and body.get("restartPolicy") == "Always")


def _resources(value: object, where: str) -> tuple[dict[str, Decimal], dict[str, Decimal]]:
    """Requests and limits of CPU, memory and hugepages; explicit zeros stay."""
    body = _mapping(value, where)
    requests = _quantities(body.get("requests"), f"{where}.requests")
    limits = _quantities(body.get("limits"), f"{where}.limits")
    for name, request in requests.items():
        limit = limits.get(name)
        if limit is not None and request > limit:
            raise ManifestError(f"{where}.requests.{name}", f"{request} is more than the limit {limit}")
        if name.startswith(HUGEPAGES) and request != limit:
            raise ManifestError(f"{where}.requests.{name}", "hugepages need a limit that equals the request")
    pages = [name for name in limits if name.startswith(HUGEPAGES)]
    if pages and not {"cpu", "memory"} & (requests.keys() | limits.keys()):
        raise ManifestError(f"{where}.limits.{pages[0]}", "hugepages need a request for cpu or memory beside them")
    return requests, limits


def _quantities(value: object, where: str) -> dict[str, Decimal]:
    found = {}
    for name, text in _mapping(value, where).items():
        if name in ("cpu", "memory") or name.startswith(HUGEPAGES):
            found[name] = _quantity(text, f"{where}.{name}", name)
    return found


def _quantity(value: object, where: str, name: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ManifestError(where, f"{_shown(value)} is not a quantity")
    try:
        quantity = parse_quantity(str(value))
        page = parse_page_size(name.removeprefix(HUGEPAGES)) if name.startswith(HUGEPAGES) else None
    except ValueError as exc:
        raise ManifestError(where, str(exc)) from exc
    if quantity < 0:
        raise ManifestError(where, f"{_shown(value)} is negative")
    if quantity > MAX_BYTES:
        raise ManifestError(where, f"{_shown(value)} is above {MAX_BYTES}")
    if page is not None and quantity % page:
        raise ManifestError(where, f"{_shown(value)} is not a whole number of pages")
    return quantity


def _status_class(top: Mapping[str, Any]) -> QosClass | None:
    word = _mapping(top.get("status"), "status").get("qosClass")
    if word is None:
        return None
    known = {q.value: q for q in (QosClass.GUARANTEED, QosClass.BURSTABLE, QosClass.BEST_EFFORT)}
    if not isinstance(word, str) or word not in known:
        raise ManifestError("status.qosClass", f"{_shown(word)} is none of {', '.join(known)}")
    return known[word]


def _mapping(value: object, where: str, *, required: bool = False) -> Mapping[str, Any]:
    if value is None and not required:
        return {}
    if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
        raise ManifestError(where, f"must be an object with keys, not {_shown(value)}")
    return value


class _Short(Repr):
    """The beginning of a value's text: YAML's aliases make a few bytes a value of any size, and a cycle endless."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = 4 * SHOWN

    def repr_int(self, value: int, level: int) -> str:
        """Hexadecimal above what Python turns into decimals."""
        del level
        return hex(value >> max(0, value.bit_length() - 4 * SHOWN)) + "…" if value.bit_length() > 512 else repr(value)

    def repr_bytes(self, value: bytes, level: int) -> str:
        """Not even a long one is copied whole."""
        del level
        return repr(value[:SHOWN])


_SHORT = _Short()


def _shown(value: object) -> str:
    text = _SHORT.repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
