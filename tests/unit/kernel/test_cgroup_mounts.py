"""Which hierarchy carries cpuset: `numapin.kernel.cgroup_mounts`."""

from __future__ import annotations

from pathlib import Path

import pytest

from numapin.kernel.cgroup_mounts import CgroupVersion, find_hierarchy, parse_mountinfo
from numapin.model.errors import NoCpusetController, PartOfCgroupTree
from support.cgroup_trees import CgroupTree, write_files

V2 = "25 20 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
TMPFS = "25 20 0:22 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
V1_CPUSET = "31 25 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
V1_MEMORY = "32 25 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
V1_CPU = "33 25 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
UNIFIED = "26 25 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n"


def machine(root: Path, mountinfo: str, controllers: dict[str, str] | None = None) -> Path:
    """A root with a mount table and ``cgroup.controllers`` files below it."""
    write_files(root, {"proc/self/mountinfo": "22 1 0:20 / /proc rw - proc proc rw\n" + mountinfo})
    write_files(root, {f"{k.lstrip('/')}/cgroup.controllers": v + "\n" for k, v in (controllers or {}).items()})
    return root


def test_unified(tmp_path: Path) -> None:
    """cgroup2 with cpuset in its controllers is v2, and limits are in the same place."""
    found = find_hierarchy(machine(tmp_path, V2, {"/sys/fs/cgroup": "cpuset cpu io memory hugetlb pids"}))

    assert (found.version, found.hybrid) == (CgroupVersion.V2, False)
    assert tmp_path / "sys/fs/cgroup" == found.cpuset_mount == found.controllers["memory"].path
    assert found.mount_point == "/sys/fs/cgroup"


def test_hybrid_uses_v1_when_cpuset_is_there(tmp_path: Path) -> None:
    """A cgroup2 mount without controllers beside v1 cpuset is hybrid, and v1 is used (B067)."""
    text = TMPFS + UNIFIED + V1_CPUSET + V1_MEMORY + V1_CPU
    found = find_hierarchy(machine(tmp_path, text, {"/sys/fs/cgroup/unified": ""}))

    assert (found.version, found.hybrid) == (CgroupVersion.V1, True)
    assert tmp_path / "sys/fs/cgroup/cpuset" == found.cpuset_mount
    assert tmp_path / "sys/fs/cgroup/cpu,cpuacct" == found.controllers["cpu"].path
    assert "hugetlb" not in found.controllers


def test_v2_wins_where_the_controller_is(tmp_path: Path) -> None:
    """v1 mounts of other controllers do not hide a cgroup2 that has cpuset; memory is read where it is (B067)."""
    found = find_hierarchy(machine(tmp_path, V2 + V1_MEMORY, {"/sys/fs/cgroup": "cpuset cpu"}))

    assert found.version == CgroupVersion.V2
    assert found.controllers["memory"].version == CgroupVersion.V1


def test_pure_v1(tmp_path: Path) -> None:
    """v1 without any cgroup2 mount is not hybrid."""
    found = find_hierarchy(machine(tmp_path, TMPFS + V1_CPUSET))

    assert (found.version, found.hybrid, found.noprefix) == (CgroupVersion.V1, False, False)
    assert found.cpuset_prefix == "cpuset."


@pytest.mark.parametrize("tail", ["cgroup cgroup rw,cpuset,noprefix", "cpuset none rw"])
def test_noprefix(tmp_path: Path, tail: str) -> None:
    """The old cpuset file system names its files without prefix."""
    found = find_hierarchy(machine(tmp_path, f"31 25 0:28 / /dev/cpuset rw - {tail}\n"))

    assert ("", tmp_path / "dev/cpuset") == (found.cpuset_prefix, found.cpuset_mount)


def test_blanks_in_a_mount_point(tmp_path: Path) -> None:
    """Octal escapes of the mount table are undone."""
    found = find_hierarchy(machine(tmp_path, "31 25 0:28 / /odd\\040place rw - cgroup cgroup rw,cpuset\n"))

    assert tmp_path / "odd place" == found.cpuset_mount


def test_cpuset_nowhere_is_a_clear_refusal(tmp_path: Path) -> None:
    """cgroup2 without cpuset and v1 without cpuset is refused, with what was looked at (B067)."""
    text = TMPFS + UNIFIED + V1_MEMORY
    with pytest.raises(NoCpusetController) as caught:
        find_hierarchy(machine(tmp_path, text, {"/sys/fs/cgroup/unified": "hugetlb pids"}))

    assert "/sys/fs/cgroup/unified is cgroup v2 with controllers hugetlb pids" in str(caught.value)
    assert "v1 controllers mounted: memory" in str(caught.value)


def test_a_part_of_a_tree_is_not_the_tree(tmp_path: Path) -> None:
    """A bind mount that shows only one container's cgroup is refused and named."""
    text = "31 25 0:28 /docker/x /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n"
    with pytest.raises(PartOfCgroupTree) as caught:
        find_hierarchy(machine(tmp_path, text))

    assert "/sys/fs/cgroup/cpuset shows only /docker/x of a cgroup tree" in str(caught.value)
    assert "--cgroupns=host" in str(caught.value)


OWN_NAMESPACE, FIRST_NAMESPACE = "cgroup:[4026532177]", "cgroup:[4026531835]"


def in_namespace(root: Path, name: str) -> None:
    """This process's cgroup namespace, as ``/proc/self/ns/cgroup`` names it."""
    (root / "proc/self/ns").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/ns/cgroup").symlink_to(name)


@pytest.mark.parametrize("above", ["/..", "/../..", "/../../../.."])
@pytest.mark.parametrize("version", list(CgroupVersion))
def test_the_whole_tree_seen_from_a_cgroup_namespace(tmp_path: Path, version: CgroupVersion, above: str) -> None:
    """The machine's own mount has a root of nothing but ``..`` there; it is the whole tree all the same."""
    text = (V2 if version is CgroupVersion.V2 else V1_CPUSET).replace(" / /sys", f" {above} /sys")
    machine(tmp_path, text, {"/sys/fs/cgroup": "cpuset memory"})
    write_files(tmp_path, {"sys/fs/cgroup/cpuset/release_agent": "\n"} if version is CgroupVersion.V1 else {})
    in_namespace(tmp_path, OWN_NAMESPACE)

    found = find_hierarchy(tmp_path)

    assert version == found.version
    assert found.mount_point == ("/sys/fs/cgroup" if version is CgroupVersion.V2 else "/sys/fs/cgroup/cpuset")


@pytest.mark.parametrize("root", ["/", "/.."])
@pytest.mark.parametrize("version", list(CgroupVersion))
def test_a_branch_seen_from_a_cgroup_namespace(tmp_path: Path, version: CgroupVersion, root: str) -> None:
    """What is mounted there begins at a branch, whatever its root is called: refused, with why and what to do."""
    text = (V2 if version is CgroupVersion.V2 else V1_CPUSET).replace(" / /sys", f" {root} /sys")
    machine(tmp_path, text, {"/sys/fs/cgroup": "cpuset memory"})
    write_files(tmp_path, {"sys/fs/cgroup/cgroup.type": "domain\n"} if version is CgroupVersion.V2 else {})
    in_namespace(tmp_path, OWN_NAMESPACE)

    with pytest.raises(PartOfCgroupTree) as caught:
        find_hierarchy(tmp_path)

    assert "shows only a branch of a cgroup tree, for this process has a cgroup namespace of its own" in str(
        caught.value
    )
    assert ("part-of-cgroup-tree", 1) == (caught.value.code, caught.value.exit_status)


def test_a_branch_without_cpuset_matters_to_nobody(tmp_path: Path) -> None:
    """A v1 controller of which only a part is mounted is one that is not there."""
    text = V1_CPUSET + V1_MEMORY.replace(" / /sys", " /docker/x /sys")
    in_namespace(machine(tmp_path, text), FIRST_NAMESPACE)

    assert ["cpuset"] == list(find_hierarchy(tmp_path).controllers)


@pytest.mark.parametrize("name", ["/../x", "/x/..", "/...", "/..x"])
def test_other_roots_with_dots(tmp_path: Path, name: str) -> None:
    """A sibling's branch, as a namespace names it, is a part, and so is a cgroup whose name begins with dots."""
    text = V2.replace(" / /sys", f" {name} /sys")
    with pytest.raises(PartOfCgroupTree, match="shows only"):
        find_hierarchy(machine(tmp_path, text, {"/sys/fs/cgroup": "cpuset"}))


def test_no_cgroups_at_all(tmp_path: Path) -> None:
    """An empty machine has no controller anywhere."""
    with pytest.raises(NoCpusetController):
        find_hierarchy(tmp_path)


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_recorded_trees_are_read_by_their_structure(tmp_path: Path, version: CgroupVersion) -> None:
    """Without a mount table the directories decide, co-mounted controllers and page sizes included."""
    found = CgroupTree(tmp_path, version).hierarchy()

    assert version == found.version
    assert found.page_sizes == (2 << 20, 1 << 30)
    assert {"cpuset", "memory", "cpu", "hugetlb"} <= set(found.controllers) | {"hugetlb"}


def test_recorded_noprefix_tree(tmp_path: Path) -> None:
    """A recorded v1 tree with a file ``mems`` is a noprefix one."""
    assert CgroupTree(tmp_path, CgroupVersion.V1, noprefix=True).hierarchy().cpuset_prefix == ""


@pytest.mark.parametrize("text", ["", "x", "1 2 3 / /a rw -", "1 2 0:1 / /a rw - cgroup", " - \n - - -\n"])
def test_garbled_mount_tables(text: str) -> None:
    """Lines of another shape are left out."""
    assert parse_mountinfo(text) == []
