"""What a container's name and metadata say, as fields of its `ContainerRecord`.

Owns: which annotations tell a sandbox, a name, a pod and a manager. Must never: read a file, or take a name from the
metadata that could not be one.
"""

from __future__ import annotations

from collections.abc import Iterator

from numapin.kernel.names import ContainerName, Role, is_safe_id, names_cgroup
from numapin.kernel.runtimes import Metadata
from numapin.model.container import ContainerKind, OciFacts, Runtime

_SANDBOX_KEYS = ("io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType")
_NAME_KEYS = ("io.kubernetes.cri.container-name", "io.kubernetes.container.name")
_POD_NAME_KEYS = (
    ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.sandbox-name"),
    ("io.kubernetes.pod.namespace", "io.kubernetes.pod.name"),
)


def contradictions(path: str, metadata: Metadata) -> Iterator[str]:
    """Sentences about metadata that belongs to another cgroup."""
    facts, state = metadata.facts, metadata.state
    if facts is not None and not names_cgroup(facts.cgroups_path, path):
        yield f"{facts.source} names the cgroup {facts.cgroups_path[:200]!r}, not this one"
    if state is not None and state.cgroup is not None and not f"{state.cgroup}/".startswith(f"{path}/"):
        yield f"{state.source} names the cgroup {state.cgroup[:200]!r}, not this one"


def container_kind(name: ContainerName, facts: OciFacts | None) -> ContainerKind:
    """A sandbox is one by its cgroup's name or by an annotation; a system container only by its name."""
    if name.role is Role.SYSTEM:
        return ContainerKind.SYSTEM
    sandbox = facts is not None and any(facts.annotations.get(k) == "sandbox" for k in _SANDBOX_KEYS)
    return ContainerKind.SANDBOX if sandbox or name.role is Role.SANDBOX else ContainerKind.CONTAINER


def container_runtime(metadata: Metadata, facts: OciFacts | None) -> Runtime:
    """CRI-O and Podman share a storage; an annotation tells them apart where the name does not."""
    manager = facts.annotations.get("io.container.manager") if facts is not None else None
    if metadata.runtime is Runtime.PODMAN and manager == "cri-o":
        return Runtime.CRIO
    return metadata.runtime


def display_name(name: ContainerName, facts: OciFacts | None, metadata: Metadata, findings: list[str]) -> str:
    """The name that an annotation gives, else the runtime's, else the id; one that cannot be goes to *findings*."""
    annotations = facts.annotations if facts is not None else {}
    given = next((annotations[k] for k in _NAME_KEYS if k in annotations), None)
    if given is not None and is_safe_id(given):
        return given
    if given is not None:
        findings.append(f"its name in the metadata is no container name: {given[:80]!r}")
    return metadata.name or name.id


def pod_name(facts: OciFacts | None) -> str | None:
    """``namespace/name`` of the pod as the metadata tells, ``None`` when it does not."""
    for namespace_key, name_key in _POD_NAME_KEYS if facts is not None else ():
        assert facts is not None
        namespace, name = facts.annotations.get(namespace_key, ""), facts.annotations.get(name_key, "")
        if is_safe_id(name):
            return f"{namespace}/{name}" if is_safe_id(namespace) else name
    return None
