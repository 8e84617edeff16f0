"""Devices and their NUMA nodes on trees as sysfs lays them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.kernel.devices import read_device_node, read_interface_node
from numapin.model.container import Device

PCI = "sys/devices/pci0000:00/0000:00:04.0"


def pci(root: Path, node: str) -> Path:
    """A PCI function with a disk below it, whose firmware says *node*."""
    disk = root / PCI / "nvme/nvme0/nvme0n1"
    disk.mkdir(parents=True)
    (root / PCI / "numa_node").write_text(node)
    return disk


def link(root: Path, name: str, target: Path) -> None:
    """A relative link, as sysfs makes them."""
    place = root / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(Path("../" * (len(Path(name).parts) - 1)) / target.relative_to(root))


def disk(major: int = 259, minor: int = 0) -> Device:
    """A block device as an OCI document names it; the path is the container's own."""
    return Device("/dev/whatever", True, major, minor)


def test_node_of_the_pci_function_above(tmp_path: Path) -> None:
    """The device number leads to the disk, and the PCI function above it names the node."""
    link(tmp_path, "sys/dev/block/259:0", pci(tmp_path, "3\n"))

    assert read_device_node(tmp_path, disk()) == 3


@pytest.mark.parametrize("text", ["-1\n", "", "many\n", "-7\n", "99999999\n"])
def test_no_usable_node_is_no_preference(tmp_path: Path, text: str) -> None:
    """-1 means that the firmware names none; garbage is no preference either, and no error."""
    link(tmp_path, "sys/dev/block/259:0", pci(tmp_path, text))

    assert read_device_node(tmp_path, disk()) is None


def test_device_without_hardware(tmp_path: Path) -> None:
    """/dev/null has no device behind it, and an unknown number has no entry at all."""
    null = tmp_path / "sys/devices/virtual/mem/null"
    null.mkdir(parents=True)
    link(tmp_path, "sys/dev/char/1:3", null)

    assert read_device_node(tmp_path, Device("/dev/null", False, 1, 3)) is None
    assert read_device_node(tmp_path, disk(8, 1)) is None


def test_link_that_leads_elsewhere_is_not_followed_up(tmp_path: Path) -> None:
    """Only what is below /sys/devices counts."""
    outside = tmp_path / "elsewhere/x"
    outside.mkdir(parents=True)
    (tmp_path / "elsewhere/numa_node").write_text("1\n")
    link(tmp_path, "sys/dev/block/259:0", outside)
    (tmp_path / "sys/devices").mkdir()

    assert read_device_node(tmp_path, disk()) is None


def test_vfio_group_has_its_devices_node(tmp_path: Path) -> None:
    """A VFIO group's number says nothing; the devices in the group do, when they agree."""
    pci(tmp_path, "1\n")
    link(tmp_path, "sys/kernel/iommu_groups/27/devices/0000:00:04.0", tmp_path / PCI)

    assert read_device_node(tmp_path, Device("/dev/vfio/27", False, 510, 0)) == 1

    other = tmp_path / "sys/devices/pci0000:00/0000:00:05.0"
    other.mkdir()
    (other / "numa_node").write_text("0\n")
    link(tmp_path, "sys/kernel/iommu_groups/27/devices/0000:00:05.0", other)

    assert read_device_node(tmp_path, Device("/dev/vfio/27", False, 510, 0)) is None


def test_interface_has_its_cards_node(tmp_path: Path) -> None:
    """A network interface leads to its PCI function; a name that is a path leads nowhere."""
    pci(tmp_path, "2\n")
    link(tmp_path, "sys/class/net/eth7/device", tmp_path / PCI)

    assert read_interface_node(tmp_path, "eth7") == 2
    assert read_interface_node(tmp_path, "../net/eth7") is None
    assert read_interface_node(tmp_path, "lo") is None
