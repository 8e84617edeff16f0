"""What container runtimes keep of a container, and which container a cgroup belongs to by that.

Owns: what is looked for below the directories of `RuntimePaths`, and in which order. These may be links of the
admin's making; below them no link is followed and no path out of a container's document is opened. Must never: run a
runtime or talk to one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from numapin.kernel.names import ContainerName, Role, is_safe_id, may_be_claimed, possible_cgroups
from numapin.kernel.oci import parse_config
from numapin.kernel.runtime_documents import Documents
from numapin.kernel.runtime_paths import RuntimePaths
from numapin.kernel.runtime_state import (
    RuntimeState,
    merge_state,
    parse_crun_status,
    parse_docker_name,
    parse_runc_state,
    parse_storage_names,
    parse_task_options,
)
from numapin.model.container import OciFacts, Runtime
from numapin.model.errors import KernelError

_OWN_NAMESPACES = ("k8s.io", "moby")
"""Namespaces of CRI and Docker, whose containers have telling cgroup names."""
_NERDCTL_STORE = re.compile("[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Metadata:
    """
    What the files of one container say. ``facts`` is ``None`` when there are none, or none usable.

    ``state`` is there once the runtime had written every limit. ``problems`` are sentences about files that exist
    and cannot be believed.
    """

    runtime: Runtime
    facts: OciFacts | None = None
    state: RuntimeState | None = None
    name: str | None = None
    problems: tuple[str, ...] = ()


class RuntimeFiles:
    """
    Reader of the runtimes' files below *root*; *mount_point* is where the machine has its cpuset hierarchy mounted.

    Documents are parsed once and again only after they were replaced. `refresh` finds out about containers that
    only their files tell; the other methods see what was there at that time.
    """

    def __init__(self, root: Path, mount_point: str, paths: RuntimePaths | None = None) -> None:
        self._documents = Documents(root)
        self._mount_point = mount_point
        self._paths = paths or RuntimePaths()
        self._cgroups: dict[str, ContainerName] = {}

    def refresh(self) -> None:
        """List the runtimes' directories again; files that cannot be read are passed over here."""
        found: dict[str, ContainerName] = {}
        for state, runtime in self._direct_states():
            self._offer(found, state.cgroup, Path(state.source).parent.name, runtime)
        for base in self._paths.tasks:
            for namespace in self._documents.listed(base):
                if namespace in _OWN_NAMESPACES:
                    continue
                for name in self._documents.listed(f"{base}/{namespace}"):
                    with contextlib.suppress(KernelError):
                        facts = self._config(base, namespace, name)
                        for path in possible_cgroups(facts.cgroups_path) if facts is not None else ():
                            self._offer(found, path, name, Runtime.CONTAINERD)
        self._cgroups = found

    def probe(self, path: str) -> bool:
        """Look for the container at *path* where its names say it should be; much cheaper than `refresh`."""
        *above, last = path.strip("/").split("/")
        names = {n for n in (last, last.removesuffix(".scope").partition("-")[2]) if is_safe_id(n)}
        found: dict[str, ContainerName] = {}
        for name in sorted(names):
            with contextlib.suppress(KernelError):
                for base in self._paths.tasks if above and is_safe_id(above[-1]) else ():
                    facts = self._config(base, above[-1], name)
                    if facts is not None and path in possible_cgroups(facts.cgroups_path):
                        self._offer(found, path, name, Runtime.CONTAINERD)
                for base in self._paths.states:
                    state = self._state(base, name)
                    if state is not None and state.cgroup == path:
                        self._offer(found, path, name, state.runtime)
        self._cgroups.update(found)
        return bool(found)

    def forget_unused(self) -> None:
        """Drop parsed documents that nobody asked for since the last call."""
        self._documents.forget_unused()

    def by_cgroup(self, path: str) -> ContainerName | None:
        """The container whose files name *path* as its cgroup."""
        return self._cgroups.get(path)

    def cgroup_of(self, base: str, *parts: str) -> str | None:
        """The cgroup that the state in the directory *parts* of *base* names; ``None`` when it says none."""
        with contextlib.suppress(KernelError):
            state = self._state(base, *parts)
            return state.cgroup if state is not None else None
        return None

    def runtime_of(self, container_id: str) -> Runtime | None:
        """Who keeps files of a container with this id; ``None`` when nobody does."""
        for base in self._paths.tasks:
            for namespace in self._documents.listed(base):
                if self._documents.exists(f"{base}/{namespace}", container_id):
                    return Runtime.DOCKER if namespace == "moby" else Runtime.CONTAINERD
        for base in self._paths.storage:
            if self._documents.exists(base, container_id):
                return Runtime.PODMAN
        for base in self._paths.states:
            if self._documents.exists(base, container_id):
                return Runtime.CRUN if base.endswith("crun") else Runtime.RUNC
        return None

    def is_kept(self, container_id: str) -> bool:
        """
        True while Docker, Podman or nerdctl keeps the container, running or not: it may be started again under its
        id.

        A task of containerd's or a state of runc's is no sign of that: they go with what they ran, only later.
        """
        if not is_safe_id(container_id):
            return False
        bases = (self._paths.docker, *self._paths.storage)
        return any(self._documents.exists(base, container_id) for base in chain(bases, self._nerdctl()))

    def read(self, name: ContainerName) -> Metadata:
        """Everything the files say about a container; missing files are normal, damaged ones are told."""
        problems: list[str] = []
        namespace, config = self._find_config(name, problems)
        # the state first: once it is there, the limits in the cgroup are final
        state = self._find_state(name, namespace, problems)
        label = None
        if name.runtime is Runtime.DOCKER or namespace == "moby":
            label = self._docker_name(name)
        elif name.runtime is Runtime.PODMAN:
            label = self._podman_name(name)
        runtime = name.runtime
        if runtime is Runtime.UNKNOWN:
            runtime = self.runtime_of(name.id) or Runtime.UNKNOWN
        return Metadata(runtime, merge_state(config, state), state, label, tuple(problems))

    # inside

    def _nerdctl(self) -> Iterator[str]:
        """Where nerdctl has a directory for each container, by containerd and namespace."""
        for store in self._documents.listed(self._paths.nerdctl):
            if _NERDCTL_STORE.fullmatch(store):
                containers = f"{self._paths.nerdctl}/{store}/containers"
                for namespace in self._documents.listed(containers):
                    yield f"{containers}/{namespace}"

    def _find_config(self, name: ContainerName, problems: list[str]) -> tuple[str | None, OciFacts | None]:
        if not is_safe_id(name.id):
            return None, None
        for base, parts in self._config_places(name):
            try:
                facts = self._config(base, *parts)
            except KernelError as exc:
                problems.append(str(exc))
                return (parts[0] if len(parts) == 2 else None), None
            if facts is not None:
                return (parts[0] if base in self._paths.tasks else None), facts
        return None, None

    def _config_places(self, name: ContainerName) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Directories that may hold the container's ``config.json``, likeliest first."""
        if name.runtime in (Runtime.CRIO, Runtime.PODMAN):
            for base in self._paths.storage:
                yield base, (name.id, "userdata")
        elif name.runtime in (Runtime.RUNC, Runtime.CRUN):
            for base in self._paths.states:  # crun keeps a copy, so that no bundle path has to be believed
                yield base, (name.id,)
        else:
            likely = "moby" if name.runtime is Runtime.DOCKER else "k8s.io"
            for base in self._paths.tasks:
                yield base, (likely, name.id)
            for base in self._paths.tasks:
                for namespace in self._documents.listed(base):
                    if namespace != likely:
                        yield base, (namespace, name.id)
            if name.runtime is Runtime.UNKNOWN:
                for base in self._paths.storage:
                    yield base, (name.id, "userdata")

    def _config(self, base: str, *parts: str) -> OciFacts | None:
        return self._documents.load(
            base, parts, "config.json", lambda text, source: parse_config(text, source=source)
        )

    def _find_state(self, name: ContainerName, namespace: str | None, problems: list[str]) -> RuntimeState | None:
        if not is_safe_id(name.id):
            return None
        places: list[tuple[str, tuple[str, ...]]] = []
        if namespace is not None:
            bases = [*self._task_state_root(name.id, namespace), *self._paths.task_states]
            places = [(b, (namespace, name.id)) for b in dict.fromkeys(bases)]
        places += [(b, (name.id,)) for b in self._paths.states]
        for base, parts in places:
            try:
                state = self._state(base, *parts)
            except KernelError as exc:
                problems.append(str(exc))
                return None
            if state is not None:
                return state
        return None

    def _task_state_root(self, container_id: str, namespace: str) -> Iterator[str]:
        """The state root that a containerd task was started with, when it is one below ``/run``."""
        for base in self._paths.tasks:
            with contextlib.suppress(KernelError):
                root = self._documents.load(
                    base, (namespace, container_id), "options.json", lambda t, s: parse_task_options(t, source=s)
                )
                if root:
                    clean = root.removeprefix("/var").rstrip("/")
                    if clean.startswith("/run/") and ".." not in clean.split("/"):
                        yield clean

    def _state(self, base: str, *parts: str) -> RuntimeState | None:
        state = self._documents.load(
            base,
            parts,
            "state.json",
            lambda text, source: parse_runc_state(text, source=source, mount_point=self._mount_point),
        )
        return state or self._documents.load(
            base, parts, "status", lambda text, source: parse_crun_status(text, source=source)
        )

    def _direct_states(self) -> Iterator[tuple[RuntimeState, Runtime]]:
        """The states of containers without telling names, and whose container each is: who keeps a task's state."""
        for base in self._paths.states:
            for name in self._documents.listed(base):
                with contextlib.suppress(KernelError):
                    state = self._state(base, name)
                    if state is not None:
                        yield state, state.runtime
        for base in self._paths.task_states:
            for namespace in self._documents.listed(base):
                for name in self._documents.listed(f"{base}/{namespace}") if namespace not in _OWN_NAMESPACES else ():
                    with contextlib.suppress(KernelError):
                        state = self._state(base, namespace, name)
                        if state is not None:
                            yield state, Runtime.CONTAINERD

    def _docker_name(self, name: ContainerName) -> str | None:
        with contextlib.suppress(KernelError):
            label = self._documents.load(
                self._paths.docker, (name.id,), "config.v2.json", lambda t, s: parse_docker_name(t, source=s)
            )
            return label if label and is_safe_id(label) else None
        return None

    def _podman_name(self, name: ContainerName) -> str | None:
        for base in self._paths.storage:
            with contextlib.suppress(KernelError):
                names = self._documents.load(
                    base, (), "containers.json", lambda t, s: parse_storage_names(t, source=s)
                )
                if names is not None and is_safe_id(label := names.get(name.id, "")):
                    return label
        return None

    @staticmethod
    def _offer(found: dict[str, ContainerName], path: str | None, container_id: str, runtime: Runtime) -> None:
        """Take *path* as a container's cgroup unless it can only be a mistake, or a trick."""
        if path is not None and may_be_claimed(path):
            found.setdefault(path, ContainerName(container_id, runtime, Role.CONTAINER))
