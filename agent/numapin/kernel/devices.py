"""On which NUMA node a device sits.

Owns: the way from a device number or interface name to the PCI device's ``numa_node``. Must never: open a device.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from numapin.kernel.files import read_optional
from numapin.model.container import Device
from numapin.model.errors import KernelError
from numapin.model.nodeset import MAX_ID, NodeId

_GROUP = re.compile(r"[0-9]{1,9}")
_LEVELS = 8
"""Directories looked at above a device: a partition's disk, its controller, the PCI function."""

_MAX_NUMBER = (1 << 32) - 1
"""The kernel has 12 bits for the major and 20 for the minor number."""
_MAX_NAME_CHARS = 64
"""IFNAMSIZ is 16; an alias in a document may be longer, but is no name in sysfs."""


def read_device_node(root: Path, device: Device) -> NodeId | None:
    """
    Node of the hardware behind a device number; ``None`` when there is none or the firmware names none (-1).

    A VFIO group (``/dev/vfio/N``) has the node that all its PCI devices agree on. ``/dev`` itself is not looked at:
    the path is the container's, and the service does not see the host's.

    Source: Documentation/ABI/testing/sysfs-dev, sysfs-bus-pci (numa_node), sysfs-kernel-iommu_groups.
    """
    if max(device.major, device.minor) > _MAX_NUMBER:
        return None
    kind = "block" if device.is_block else "char"
    found = _node_above(root, root / f"sys/dev/{kind}/{device.major}:{device.minor}")
    if found is None and device.path.startswith("/dev/vfio/") and _GROUP.fullmatch(device.path[10:]):
        found = _vfio_group(root, device.path[10:])
    return found


def read_interface_node(root: Path, name: str) -> NodeId | None:
    """
    Node of the hardware behind the host's network interface *name*; ``None`` as in `read_device_node`.

    Source: Documentation/ABI/testing/sysfs-class-net, sysfs-bus-pci (numa_node).
    """
    if not name or len(name) > _MAX_NAME_CHARS or not name.isprintable() or "/" in name or name in (".", ".."):
        return None
    return _node_above(root, root / f"sys/class/net/{name}/device")


def _node_above(root: Path, link: Path) -> NodeId | None:
    """The nearest ``numa_node`` from where *link* leads upwards, but not above ``/sys/devices``."""
    top = os.path.realpath(root / "sys/devices")
    here = os.path.realpath(link)
    for _ in range(_LEVELS):
        if not here.startswith(f"{top}/"):
            return None
        node = _number(Path(here) / "numa_node")
        if node is not None:
            return node if node >= 0 else None
        here = os.path.dirname(here)
    return None


def _vfio_group(root: Path, group: str) -> NodeId | None:
    base = root / f"sys/kernel/iommu_groups/{group}/devices"
    try:
        names = os.listdir(base)
    except OSError:
        return None
    nodes = {_node_above(root, base / name) for name in names}
    return nodes.pop() if len(nodes) == 1 else None


def _number(path: Path) -> NodeId | None:
    """The file's number as far as it is one of ours; -1 for the kernel's "none"."""
    try:
        text = read_optional(path)
    except KernelError:
        return None
    if text is None:
        return None
    word = text.strip()
    if word == "-1":
        return NodeId(-1)
    return NodeId(int(word)) if _GROUP.fullmatch(word) and int(word) <= MAX_ID else None
