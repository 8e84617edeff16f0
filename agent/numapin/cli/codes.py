"""
What each stable code means: one paragraph a code, for ``numapin explain CODE``.

Owns: the only table of all codes. Must never: import anything; a test holds it against the codes in the source.
"""

from __future__ import annotations

from collections.abc import Mapping

REFUSALS: Mapping[str, str] = {
    "does-not-fit": (
        "Refusal. Not even all nodes that the container may use together could hold the request when empty, after "
        "what is reserved for the system and in hugepage pools, so memory that is released does not help. Lower its "
        "limit, reserve less, or allow it more nodes."
    ),
    "no-room": (
        "Refusal. An empty machine could hold the request, but what is free now cannot under the rule that groups "
        "of nodes are disjoint: a request goes to one node outside every group, to one existing group as a whole, "
        "or to several unused nodes that become a group. It is tried again when memory is released."
    ),
    "not-fewest-nodes": (
        "Refusal under the policy restricted. The request would fit on more nodes than an empty machine needs for "
        "it, or into an existing group; restricted insists on the fewest. It is tried again when memory is "
        "released; the policy best-effort would take the wider set."
    ),
    "not-single-node": (
        "Refusal under the policy single-numa-node. No single node outside a group has room for the request. The "
        "policies restricted and best-effort may use several nodes."
    ),
    "hints-disagree": (
        "Refusal. Memory fits somewhere, but not on nodes that its CPUs or devices prefer, and the policy insists "
        "that all agree. Free memory there, give it other CPUs, switch the provider off in the configuration, or "
        "use the policy best-effort."
    ),
    "unknown-type": (
        "Refusal. No allowed node has memory of a requested type, such as hugepages of that size. Add pages to a "
        "node's pool (nr_hugepages), or change the container's hugepage limit."
    ),
}

EXCLUSIONS: Mapping[str, str] = {
    "not-allowed": (
        "Why a node cannot serve. It is outside the nodes that the container's parent cgroups grant "
        "(cpuset.mems.effective of the parent) or that the configuration uses."
    ),
    "type-missing": (
        "Why a node cannot serve. It has no memory of a requested type, for example no pages of that size."
    ),
    "in-group": (
        "Why a node cannot serve alone. A container's memory over several nodes ties it into a group; until that "
        "is gone, a request goes to the whole group or elsewhere."
    ),
    "holds-single-node-assignments": (
        "Why a node cannot serve. Alone it would be too small even when empty, and because it serves containers "
        "of one node it cannot join others in a new group."
    ),
    "too-small": "Why a node cannot serve alone. Even when empty it would not hold the request.",
    "not-enough-free": (
        "Why a node cannot serve. When empty it would hold the request, but too much is promised already."
    ),
    "kernel-has-less": (
        "Why a node cannot serve. The books have enough, but the kernel has fewer free pages: somebody outside "
        "the books uses them. Pages that are not there are not promised."
    ),
    "memoryless": "Why a node cannot serve. It has no memory at all.",
    "no-normal-memory": (
        "Why a node cannot serve alone. All its memory is movable, which the kernel cannot use for itself; a "
        "placement always holds one node with normal memory."
    ),
}

TIE_BREAKS: Mapping[str, str] = {
    "only-set-that-fits": "Why these nodes. No other set of as few nodes could take the request.",
    "lowest-node-ids": (
        "Why these nodes. Several sets of as few nodes could take the request; the numerically smallest was "
        "taken, as the kubelet does: the one whose highest node id is lowest, then the next highest, and so on."
    ),
    "closest-nodes": (
        "Why these nodes. Among sets of as few nodes the one with the smallest distances was taken, because "
        "prefer_closest is on in the configuration."
    ),
    "own-nodes": "Why these nodes. The container was placed again with another size and stays where it was.",
    "resident-pages": "Why these nodes. Among equal sets the container's pages were mostly on this one already.",
    "memory-of-ended-containers": (
        "Why these nodes. Among equal sets this one holds memory that ended containers of the same pod left behind."
    ),
    "other-providers": "Why these nodes. The container's CPUs or devices decided among the sets that memory allows.",
    "nodes-of-its-pod": (
        "Why these nodes. They were given: those of its pod (pod scope), decided with its first container, or "
        "those it has already while it runs. No others are open to it."
    ),
    "already-assigned": (
        "Why these nodes. The container held the same sizes before and keeps its nodes, whatever the policy."
    ),
}

RULES: Mapping[str, str] = {
    "pod-path": (
        "Rule of the class. In Kubernetes the pod's place in the cgroup tree tells: kubepods/burstable, "
        "kubepods/besteffort, or directly under kubepods, which means Guaranteed."
    ),
    "sandbox": "Rule of the class. The cgroup holds a pod's namespaces (the pause container), not a workload.",
    "system-container": (
        "Rule of the class. LXC and systemd-nspawn containers are managed only with qos.system_containers = true."
    ),
    "limits": (
        "Rule of the class. Outside Kubernetes a container is Guaranteed when its memory is limited (and a memory "
        "reservation, if any, equals the limit) and its CPU is limited by a quota or a CPU set."
    ),
    "limits-partial": (
        "Rule of the class. Only some of memory and CPU are limited, or the memory reservation differs from the "
        "limit: Burstable, so it is never restricted."
    ),
    "limits-none": "Rule of the class. Neither memory nor CPU is limited: BestEffort, so it is never restricted.",
    "limits-disagree": (
        "Rule of the class. The cgroup has no memory limit although the container's metadata names one; its size "
        "is unknown, so nothing is promised."
    ),
    "annotation": "Rule of the class. The OCI annotation numapin.guaranteed=true makes it Guaranteed.",
    "annotation-opt-out": (
        "Rule of the class. The OCI annotation numapin.guaranteed=false keeps it from being managed."
    ),
    "annotation-missing": (
        "Rule of the class. With qos.standalone = annotation only containers with the OCI annotation "
        "numapin.guaranteed=true are Guaranteed outside Kubernetes."
    ),
    "standalone-never": "Rule of the class. With qos.standalone = never nothing outside Kubernetes is Guaranteed.",
    "inside-a-container": (
        "Rule of the class. It runs inside another container (kind, Docker in Docker, a CI runner), which is what "
        "gets nodes; it has no class of its own. With cgroup.root inside that container it is the other way round."
    ),
}

STATES: Mapping[str, str] = {
    "pinned": "State. The container's nodes are guaranteed, and the kernel grants exactly these in cpuset.mems.",
    "pinning": "State. The nodes are decided and saved; the kernel is still moving the container's pages.",
    "deferred": (
        "State. The memory is reserved, but the container's pages would not fit on the nodes now. The pin is written "
        "when there is room."
    ),
    "pin-lost": (
        "State. A node of the container has no memory at the moment: its blocks were taken offline, or it was "
        "unplugged. The reservation stays, nobody else gets it, and the pin is right again within a second of the "
        "memory's return (echo online_movable > /sys/devices/system/memory/memoryN/state). numapin release gives "
        "the reservation up instead; a restart of the container gets it other nodes if any have room."
    ),
    "would-pin": "State. A dry run: the decision stands in the status, and nothing is written to the cgroup.",
    "nested": (
        "State. It runs inside another container, which is the one that is placed: its reservation covers what runs "
        "in it. Nothing is booked, written or watched for a nested one. cgroup.root in the configuration makes the "
        "inner ones those that are placed."
    ),
    "pinned-by-others": (
        "State. Somebody else chose the container's nodes (cpuset.mems in its OCI configuration, or written by "
        "hand), or a kubelet with the memory manager policy Static places the containers of its pods. Its bytes "
        "are taken out of the books there, and the cgroup is left alone."
    ),
    "refused": (
        "State. No promise can be kept. The container runs on, unrestricted, and is tried again when memory is "
        "released (retry_refused)."
    ),
    "contested": (
        "State. Somebody else writes the container's cpuset.mems again and again. It is put right less and less "
        "often, and is not right now; find the other writer (numad, a script, a systemd property)."
    ),
    "released": (
        "State. Taken back by numapin release: what was there before the first write is restored, and nothing is "
        "promised until the container or the daemon is started again."
    ),
    "failed": (
        "State. The kernel did not take or grant the nodes, or the promise could not be saved; nothing is promised. "
        "Or what stood there before could not be put back: then the nodes stay reserved until it can."
    ),
    "unpinned": (
        "State. The class is Guaranteed, but the facts contradict each other or the size is unknown. Unclear "
        "facts never give a pin and never take one away."
    ),
    "not-managed": "State. Not Guaranteed, or not a workload: it may use every node that its parent cgroups allow.",
    "not-decided": "State. Only looked at (numapin containers --root), without a daemon and so without a decision.",
    "ended": (
        "State. The container ended. Its memory waits release_grace for its pod's next container, or for its restart."
    ),
}

FINDINGS: Mapping[str, str] = {
    "topology": (
        "Finding. Something about the machine's nodes in sysfs is odd but usable; the sentence names the file."
    ),
    "cpu-less-nodes": (
        "Finding. Nodes with memory but no CPUs (GPU memory, CXL, HBM) are not used unless nodes.cpu_less in the "
        "configuration names them."
    ),
    "checkpoint-damaged": (
        "Finding. The saved state could not be believed at the start. The damaged file was kept under the name "
        "given, and the state was taken from the generation before or from the cgroups."
    ),
    "not-watched": (
        "Finding. A directory cannot be watched for events, so changes there are seen only by the full pass "
        "(full_pass_interval). Often fs.inotify.max_user_watches is too low."
    ),
    "unreadable": (
        "Finding. A container's cgroup or metadata cannot be read; the sentence names the file and the error."
    ),
    "memory-totals-differ": (
        "Finding. The nodes' memory does not add up to what /proc/meminfo says; the nodes' own numbers are used."
    ),
    "no-memory-controller": (
        "Finding. The memory controller is off or not mounted, so no cgroup shows a memory limit. Sizes come from "
        "the containers' metadata; a container without any gets no nodes. Boot with cgroup_enable=memory."
    ),
    "promise-does-not-fit": (
        "Finding. The machine shrank (memory, pools, reservations) below what is promised. The promise stands; "
        "all that share the short node or group are named. Make room, or restart one of them."
    ),
    "kubelet-beside": (
        "Finding. A kubelet with the Static memory manager runs here: its pods' containers are left to it, and "
        "what it promised counts as reserved."
    ),
    "kubelet-and-ours": (
        "Finding. The kubelet promised memory on nodes where numapin's promises leave too little, so some of it "
        "could not be accounted; the sentence has the numbers."
    ),
    "kubelet-state-unverified": (
        "Finding. The kubelet's state file has no checksum that can be checked; it is believed."
    ),
    "kubelet-state-damaged": (
        "Finding. The kubelet's state file cannot be believed; what was last read from it, if anything, stands."
    ),
    "all-released": "Finding. numapin release --all was run: nothing is pinned until the daemon is started again.",
    "config-refused": (
        "Finding. A reload found a configuration that cannot be used; the one from before stays in force. numapin "
        "check-config names every problem; mend them and reload again. A restart would not start with it."
    ),
    "needs-restart": "Finding. The configuration was changed in keys that only a restart of the service takes up.",
    "cpuset-enabled": (
        "Finding. With cgroup.enable_cpuset numapin enabled the cpuset controller in the cgroups named, above "
        "containers that it pinned. The kernel gives every process there the CPUs of its cgroup: an affinity set by "
        "taskset or CPUAffinity= can be lost. It stays enabled, after a release too; it ends with the cgroup."
    ),
    "cgroup-root": (
        "Finding. The cgroup that cgroup.root names is not there: the container around it does not run, or the path "
        "begins elsewhere than at the hierarchy's root. Nothing is placed until it is there; then what is in it is "
        "found at once."
    ),
    "memory-in-use": (
        "Finding. The kernel has less memory left on a node, page cache counted as free, than is promised there to "
        "pinned containers and not used by them yet, as of the last full pass: what is not managed (Burstable and "
        "BestEffort containers, the host) uses it. The books do not change, but a container that asks for its memory "
        "may be killed although other nodes have room. Limit or move the others, or reserve more for the system."
    ),
    "not-put-back": (
        "Finding. A container gets no nodes (any more), and the kernel did not take the value that stood in its "
        "cpuset.mems before: ours still stands there, and its memory stays reserved until that is done. Each full "
        "pass tries again, numapin release does so at once, and the end of the container ends it too."
    ),
    "out-of-reach": (
        "Finding. cgroup.root was changed while a container outside of it was pinned, and its cgroup could not be "
        "given back what it had before. Its record and its memory are kept, and each full pass tries again."
    ),
    "no-uevents": (
        "Finding. The kernel's device events cannot be received; memory hotplug is seen only after a restart or "
        "systemctl reload numapin."
    ),
}

ERRORS: Mapping[str, str] = {
    "error": "Error. The base of all errors; it stands alone only for what has no code of its own.",
    "config-wrong": (
        "Error, exit 6. The configuration has problems; each is named with file and key. See numapin.toml(5)."
    ),
    "kernel-error": "Error. Something between numapin and the kernel failed; the sentence names the kernel's file.",
    "kernel-read": "Error. A file of the kernel cannot be read; the sentence has its path and the errno.",
    "kernel-write": (
        "Error. The kernel refused a value for cpuset.mems. EINVAL: a node it does not know or that has no "
        "memory. ENOSPC: a populated cgroup cannot be left without nodes. EACCES: outside the parent's nodes "
        "(cgroup v1). EBUSY: a child cgroup still uses nodes that the value leaves out. EROFS: mounted read-only."
    ),
    "cpuset-not-enabled": (
        "Error. With cgroup.enable_cpuset numapin tried to enable the cpuset controller above a container, and the "
        "kernel did not take it. EBUSY: processes live in that cgroup itself. EACCES, EPERM, EROFS: numapin may not "
        "write there. ENOENT: the controller is not offered there. At the root of the hierarchy it is not tried."
    ),
    "kernel-format": "Error. A file of the kernel has content that numapin does not understand; please report it.",
    "cgroup-gone": "Error. The cgroup vanished between two steps, which is normal when a container ends.",
    "no-cpuset": (
        "Error. No mounted cgroup hierarchy has the cpuset controller. Boot with cgroup v2 "
        "(systemd.unified_cgroup_hierarchy=1) or mount the v1 cpuset controller."
    ),
    "part-of-cgroup-tree": (
        "Error. Only one branch of the machine's cgroup tree is mounted here, as in a container with a cgroup "
        "namespace of its own. Start numapin on the host, or with the host's namespace and /sys/fs/cgroup "
        "(docker run --cgroupns=host -v /sys/fs/cgroup:/sys/fs/cgroup)."
    ),
    "checkpoint": "Error. Something about the saved state; the sentence names file and reason.",
    "checkpoint-corrupt": (
        "Error. The saved state is there but its checksum or shape is wrong. numapin checkpoint verify."
    ),
    "checkpoint-version": (
        "Error; a finding of a daemon. The saved state was written by a version with another schema. A daemon keeps "
        "that file, whole, under the name given, and takes the state from the generation before or from the cgroups."
    ),
    "checkpoint-unwritable": (
        "Error and finding. The saved state cannot be written (disk full, read-only). Until it can, no new "
        "promise is made and no cgroup is written; existing pins stay."
    ),
    "checkpoint-unreadable": (
        "Error and finding. The saved state is there, but cannot be opened or is a symbolic link. The daemon tries "
        "again every few seconds; until then no promise is made, no cgroup is written, existing pins stay."
    ),
    "kubelet-state": "Error. The kubelet's memory manager state cannot be read; the sentence says why.",
    "systemd": (
        "Error. systemd did not take a unit's AllowedMemoryNodes; the direct write to the cgroup stands alone."
    ),
    "systemd-absent": (
        "Error. No systemd answers on the system bus, or it is too old to know AllowedMemoryNodes; the direct "
        "write to the cgroup stands alone."
    ),
    "no-such-unit": "Error. systemd has no unit for the container's cgroup; the direct write to it stands alone.",
    "not-running": (
        "Error, exit 3. No daemon answers on the socket. Start it with systemctl start numapin, without systemd with "
        "numapin run, or in a clone of the repository with make run."
    ),
    "no-answer": "Error. A daemon holds the socket and gave no answer in time: it is busy or hangs. Try again.",
    "already-running": "Error. Another daemon holds the lock; stop it first (systemctl stop numapin).",
    "not-permitted": "Error, exit 4. Reading needs root or the group numapin; changing needs root.",
    "socket-unusable": "Error. The API socket cannot be made; the sentence says what is in the way.",
    "invariant": "Error. A rule that numapin's own code must keep does not hold; please report it with the log.",
    "bad-request": (
        "Error, exit 2. The API request is not one line of JSON with verb and params, or a param is wrong."
    ),
    "bad-version": (
        "Error, exit 2. Command and daemon speak different apiVersions; restart the daemon after an upgrade."
    ),
    "bad-answer": "Error. What answers on the socket is no numapin daemon of this apiVersion.",
    "too-large": "Error, exit 2. An API request is longer than the daemon takes.",
    "unknown-verb": "Error, exit 2. The daemon does not know the request; restart it after an upgrade.",
    "dry-run": "Error. The daemon runs with --dry-run and has written nothing, so there is nothing to take back.",
    "nothing-to-release": (
        "Error. The container has no promise of numapin's that could be taken back; its state says why."
    ),
    "internal": "Error. The daemon failed on this request; its log has the trace. Please report it.",
    "unknown-container": "Error. No container is meant by what was given; numapin containers lists them all.",
    "ambiguous": "Error, exit 2. Several containers are meant; say which by its id or its cgroup.",
    "bad-plan": "Error, exit 2. What plan was asked cannot be asked of this machine; the sentence names the value.",
    "bad-pod": "Error, exit 2. The Pod manifest is not one the API server would take; the sentence names the key.",
    "pod-unreadable": "Error. The manifest cannot be read, or reading YAML needs PyYAML (package python3-yaml).",
    "too-many-nodes": (
        "Error. The kubelet tries every set of nodes, and on so many nodes its answer is not found without that; the "
        "sentence says what makes it so (kinds of memory, closeness, containers) and up to how many nodes there is "
        "always an answer. numapin plan --memory answers for any number."
    ),
}

KUBELET: Mapping[str, str] = {
    "TopologyAffinityError": (
        "The kubelet's word. Its Topology Manager rejects the pod: no set of nodes is one that every resource "
        "prefers. The codes not-fewest-nodes, not-single-node and hints-disagree are numapin's for it."
    ),
    "UnexpectedAdmissionError": (
        "The kubelet's word. Its Memory Manager cannot allocate: no set of nodes has enough memory. The codes no- "
        "room, does-not-fit and unknown-type are numapin's for it."
    ),
}

CODES: Mapping[str, str] = {
    **REFUSALS,
    **EXCLUSIONS,
    **TIE_BREAKS,
    **RULES,
    **STATES,
    **FINDINGS,
    **ERRORS,
    **KUBELET,
}
"""Every code with its paragraph."""
