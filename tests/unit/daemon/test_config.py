"""Configuration files: defaults, order, and every problem at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.daemon.config import Config, Reserved, keep_until_restart, load_config, reserved_bytes, under
from numapin.daemon.config_keys import KEYS, LogFormat, LogLevel, format_duration, parse_duration
from numapin.model.container import StandaloneQos
from numapin.model.errors import ConfigError
from numapin.model.memory import MEMORY, hugepages
from numapin.model.nodeset import CpuSet, NodeId, NodeSet
from numapin.model.plan import Scope, TopologyPolicy
from numapin.model.topology import HugepagePool, NodeKind, NumaNode, Topology
from support.privilege import public_directory, unprivileged
from support.trees import write_tree

PACKAGED = Path(__file__).parents[3] / "packaging" / "numapin.toml"
MAIN = "etc/numapin/numapin.toml"
GIB = 1 << 30
MIB = 1 << 20
PAGES_2M = hugepages(2 * MIB)


def loaded(root: Path, text: str) -> Config:
    """Configuration of a machine with this one file."""
    return load_config(write_tree(root, {MAIN: text}))


def problems(root: Path, text: str) -> dict[str, str]:
    """Sentences by key for this one file, each of which must name the file."""
    with pytest.raises(ConfigError) as caught:
        loaded(root, text)
    assert {str(root / MAIN)} == {file for file, _, _ in caught.value.problems}
    return {key: what for _, key, what in caught.value.problems}


def test_no_file(tmp_path: Path) -> None:
    """Without any file the defaults are in force."""
    assert Config() == load_config(tmp_path)


def test_kept_until_a_restart() -> None:
    """What a running daemon cannot change stays as it was, with its keys; everything else is the new value."""
    old = Config()
    new = replace(old, state_dir=Path("/srv"), v1_memory_migrate=False, policy=TopologyPolicy.NONE)

    assert (
        replace(old, policy=TopologyPolicy.NONE),
        ("state_dir", "cgroup.v1_memory_migrate"),
    ) == keep_until_restart(old, new)
    assert (old, ()) == keep_until_restart(old, old)


def uncommented() -> str:
    """The packaged file with the ``#`` of each key taken away."""
    lines = PACKAGED.read_text().split("\n")
    keys = {key.rpartition(".")[2] for key in KEYS}
    return "\n".join(
        line[1:] if line.startswith("#") and line[1:].split(" = ")[0] in keys else line for line in lines
    )


def test_packaged_file_as_shipped(tmp_path: Path) -> None:
    """The file that is installed changes nothing."""
    assert Config() == loaded(tmp_path, PACKAGED.read_text())


def test_packaged_file_shows_every_default(tmp_path: Path) -> None:
    """The packaged file documents every key, and the value it shows is the default."""
    config = loaded(tmp_path, uncommented())

    assert Config() == config
    assert set(KEYS) == set(config.sources)


def test_packaged_example_of_a_node(tmp_path: Path) -> None:
    """The example table in the packaged file is one that is understood."""
    lines = [line[4:] for line in PACKAGED.read_text().split("\n") if line.startswith("#   ")]
    example = lines[lines.index("[reserved.node.0]") :]

    assert {NodeId(0): {MEMORY: GIB, PAGES_2M: 10 * MIB}} == loaded(tmp_path, "\n".join(example[:3])).reserved.nodes


def test_every_key(tmp_path: Path) -> None:
    """Each key reaches its field."""
    text = """
policy = "single-numa-node"
scope = "pod"
prefer_closest = true
retry_refused = false
release_grace = "0s"
full_pass_interval = "1m30s"
state_dir = "/srv/numapin"
socket = "/srv/api.sock"
qos.standalone = "annotation"
qos.system_containers = true
reserved.fraction = "2.5%"
reserved.minimum = 1000
reserved.node.2 = { memory = "2Gi", "hugepages-2048Ki" = "4Mi" }
nodes.cpu_less = [4, 5]
cgroup.root = "/a.slice//b.scope/"
cgroup.v1_memory_migrate = false
cgroup.enable_cpuset = true
providers.cpus = false
kubelet.follow = false
kubelet.state = "/srv/kubelet/memory_manager_state"
log.level = "debug"
log.format = "json"
"""
    expected = Config(
        policy=TopologyPolicy.SINGLE_NUMA_NODE,
        scope=Scope.POD,
        prefer_closest=True,
        retry_refused=False,
        release_grace_ns=0,
        full_pass_interval_ns=90_000_000_000,
        state_dir=Path("/srv/numapin"),
        socket=Path("/srv/api.sock"),
        qos_standalone=StandaloneQos.ANNOTATION,
        qos_system_containers=True,
        reserved=Reserved(25_000, 1000, {NodeId(2): {MEMORY: 2 * GIB, PAGES_2M: 4 * MIB}}),
        cpu_less_nodes=NodeSet.of(4, 5),
        cgroup_root="/a.slice/b.scope",
        v1_memory_migrate=False,
        enable_cpuset=True,
        provider_cpus=False,
        kubelet_follow=False,
        kubelet_state=Path("/srv/kubelet/memory_manager_state"),
        log_level=LogLevel.DEBUG,
        log_format=LogFormat.JSON,
    )

    assert expected == loaded(tmp_path, text)


def test_drop_ins(tmp_path: Path) -> None:
    """Drop-ins are read in the order of their names, tables merge, and each value knows its file."""
    root = write_tree(
        tmp_path,
        {
            MAIN: 'policy = "none"\n[reserved.node.0]\nmemory = "1Gi"\n[log]\nlevel = "debug"\n',
            "etc/numapin/conf.d/10-a.toml": 'policy = "best-effort"\n[reserved.node.1]\nmemory = "2Gi"\n',
            "etc/numapin/conf.d/20-b.toml": 'policy = "restricted"\n[reserved.node.0]\nhugepages-2Mi = "2Mi"\n',
            "etc/numapin/conf.d/30-not-toml.conf": "rubbish",
            "etc/numapin/conf.d/.hidden.toml": "rubbish",
        },
    )
    config = load_config(root)

    assert config.policy == TopologyPolicy.RESTRICTED
    assert config.reserved.nodes == {0: {MEMORY: GIB, PAGES_2M: 2 * MIB}, 1: {MEMORY: 2 * GIB}}
    assert {
        "policy": str(root / "etc/numapin/conf.d/20-b.toml"),
        "reserved.node.0.memory": str(root / MAIN),
        "reserved.node.0.hugepages-2Mi": str(root / "etc/numapin/conf.d/20-b.toml"),
        "reserved.node.1.memory": str(root / "etc/numapin/conf.d/10-a.toml"),
        "log.level": str(root / MAIN),
    } == config.sources


def test_given_file(tmp_path: Path) -> None:
    """A file given on the command line is read instead of the root's, with the conf.d beside it."""
    root = write_tree(
        tmp_path,
        {
            MAIN: "rubbish",
            "mine/x.toml": 'scope = "pod"\n',
            "mine/conf.d/a.toml": "prefer_closest = true\n",
        },
    )

    assert Config(scope=Scope.POD, prefer_closest=True) == load_config(root, root / "mine/x.toml")


def test_given_file_is_missing(tmp_path: Path) -> None:
    """A file given on the command line must exist."""
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path, tmp_path / "x.toml")

    assert ((str(tmp_path / "x.toml"), "", "there is no such file"),) == caught.value.problems


def test_every_problem_at_once(tmp_path: Path) -> None:
    """All wrong keys of all files are told in one error, each with its file."""
    root = write_tree(
        tmp_path,
        {
            MAIN: 'policy = "strict"\npolcy = "none"\nretry_refused = 1\n',
            "etc/numapin/conf.d/a.toml": 'release_grace = 30\n[qos]\nstandalone = "limits"\nstandalon = "x"\n',
            "etc/numapin/conf.d/b.toml": "scope =\n",
        },
    )
    with pytest.raises(ConfigError) as caught:
        load_config(root)
    found = [(Path(file).name, key) for file, key, _ in caught.value.problems]

    assert found == [
        ("numapin.toml", "policy"),
        ("numapin.toml", "polcy"),
        ("numapin.toml", "retry_refused"),
        ("a.toml", "release_grace"),
        ("a.toml", "qos.standalon"),
        ("b.toml", ""),
    ]
    assert "did you mean policy?" in str(caught.value)
    assert "did you mean qos.standalone?" in str(caught.value)
    assert "line 1" in caught.value.problems[-1][2]


@pytest.mark.parametrize(
    ("text", "key", "part"),
    [
        ('policy = "Restricted"', "policy", '"restricted"'),
        ("policy = true", "policy", "not true"),
        ("policy = {}", "policy", "not a table"),
        ('scope = "node"', "scope", 'must be "container" or "pod"'),
        ('prefer_closest = "yes"', "prefer_closest", "must be true or false"),
        ('release_grace = "30"', "release_grace", "not a duration"),
        ('release_grace = "-1s"', "release_grace", "not a duration"),
        ('release_grace = "1.5s"', "release_grace", "not a duration"),
        (f'state_dir = "/{"x" * 256}"', "state_dir", "which no file can have"),
        ('full_pass_interval = "999ms"', "full_pass_interval", "too short"),
        ('state_dir = "var/lib"', "state_dir", "absolute path"),
        ('state_dir = "/var/../lib"', "state_dir", "absolute path"),
        ('cgroup.root = "docker"', "cgroup.root", "absolute path"),
        ('cgroup.root = "/a/../b"', "cgroup.root", "absolute path"),
        ('cgroup.root = "/sys/fs/cgroup/a.slice"', "cgroup.root", "without /sys/fs/cgroup"),
        ("cgroup.enable_cpuset = 1", "cgroup.enable_cpuset", "must be true or false"),
        ('socket = "/' + "x" * 120 + '"', "socket", "107 bytes"),
        ('reserved.fraction = "101%"', "reserved.fraction", "not a part"),
        ("reserved.fraction = 0.05", "reserved.fraction", "not a part"),
        ('reserved.minimum = "64MB"', "reserved.minimum", "not a size"),
        ("reserved.minimum = -1", "reserved.minimum", "not in 0-"),
        ('reserved.minimum = "9Ei"', "reserved.minimum", "above"),
        ("reserved.minimum = true", "reserved.minimum", "not a size"),
        ("reserved = 5", "reserved", "[reserved]"),
        ("reserved.node = 5", "reserved.node", "[reserved.node.0]"),
        ("[[reserved.node]]\nid = 0", "reserved.node", "[reserved.node.0]"),
        ("reserved.node.0 = 5", "reserved.node.0", "must be a table"),
        ("[reserved.node.first]", "reserved.node.first", "not a node number"),
        ("[reserved.node.70000]", "reserved.node.70000", "not a node number"),
        ('[reserved.node.0]\nmemroy = "1Gi"', "reserved.node.0.memroy", "unknown memory type"),
        ('[reserved.node.0]\nhugepages-3Mi = "3Mi"', "reserved.node.0.hugepages-3Mi", "'3Mi' is no page size"),
        ('[reserved.node.0]\nhugepages-2Ki = "2Ki"', "reserved.node.0.hugepages-2Ki", "'2Ki' is no page size"),
        ('[reserved.node.0]\nhugepages- = "3Mi"', "reserved.node.0.hugepages-", "not a size"),
        ('[reserved.node.0]\nmemory = "lots"', "reserved.node.0.memory", "not a size"),
        ("nodes.cpu_less = 4", "nodes.cpu_less", "list of node numbers"),
        ("nodes.cpu_less = [4, true]", "nodes.cpu_less", "list of node numbers, as in [4, 5]; true is none"),
        ('nodes.cpu_less = [1, "a"]', "nodes.cpu_less", "list of node numbers, as in [4, 5]; 'a' is none"),
        ("nodes.cpu_less = [[1], 2]", "nodes.cpu_less", "list of node numbers, as in [4, 5]; a list is none"),
        ("nodes.cpu_less = [-1]", "nodes.cpu_less", "not in 0-"),
        ('log.level = "trace"', "log.level", '"debug"'),
        ("provider.cpus = true", "provider", "unknown key"),
        ('"a\\nb" = 1', "a?b", "unknown key"),
    ],
)
def test_one_wrong_value(tmp_path: Path, text: str, key: str, part: str) -> None:
    """A wrong value is told with its key and what would be right, on one line."""
    found = problems(tmp_path, text)

    assert [key] == list(found)
    assert part in found[key]
    assert "\n" not in found[key]


@pytest.mark.parametrize(
    ("link", "part"),
    [
        (MAIN, "a file that is not there"),
        ("etc/numapin/conf.d/99.toml", "a file that is not there"),
        ("etc/numapin/conf.d", "a directory that is not there"),
    ],
)
def test_a_link_that_leads_nowhere(tmp_path: Path, link: str, part: str) -> None:
    """A symbolic link to nothing is told, for somebody wants what it stands for to count; a missing file is not."""
    path = tmp_path / link
    path.parent.mkdir(parents=True)
    path.symlink_to("elsewhere.toml")
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)
    path.unlink()

    assert caught.value.problems == ((str(path), "", f"is a symbolic link to {part}"),)
    assert load_config(tmp_path) == Config()


def test_a_link_to_a_file_counts(tmp_path: Path) -> None:
    """A drop-in may be a symbolic link, as configuration management makes them."""
    write_tree(tmp_path, {"srv/site.toml": 'policy = "none"\n', "etc/numapin/conf.d/": ""})
    (tmp_path / "etc/numapin/conf.d/50.toml").symlink_to(tmp_path / "srv/site.toml")

    assert load_config(tmp_path).policy is TopologyPolicy.NONE


def test_not_utf8(tmp_path: Path) -> None:
    """A file in another encoding is told with the line."""
    path = write_tree(tmp_path, {MAIN: ""}) / MAIN
    path.write_bytes(b'policy = "none"\n# gr\xfc\xdf\n')
    with pytest.raises(ConfigError, match="not UTF-8 text") as caught:
        load_config(tmp_path)

    assert "line 2" in caught.value.problems[0][2]


@pytest.mark.parametrize("text", ["a = " + "[" * 50_000, "a = " + "9" * 10_000, "#" * (1 << 21)])
def test_hostile_file(tmp_path: Path, text: str) -> None:
    """Nesting, digits or size without end are a problem of the file."""
    assert list(problems(tmp_path, text)) == [""]


def test_directory_instead_of_a_file(tmp_path: Path) -> None:
    """What is no file is told with the reason."""
    (tmp_path / MAIN).mkdir(parents=True)
    with pytest.raises(ConfigError, match="EISDIR"):
        load_config(tmp_path)


def test_not_permitted() -> None:
    """A file and a directory that may not be read are both told."""
    with public_directory() as root:
        write_tree(root, {MAIN: "", "etc/numapin/conf.d/": ""})
        (root / MAIN).chmod(0)
        (root / "etc/numapin/conf.d").chmod(0)
        with unprivileged(), pytest.raises(ConfigError) as caught:
            load_config(root)
        (root / "etc/numapin/conf.d").chmod(0o755)

    assert [str(Path(f).relative_to(root)) for f, _, _ in caught.value.problems] == [MAIN, "etc/numapin/conf.d"]
    assert str(caught.value).count("EACCES") == 2


@given(st.integers(0, 10**12))
def test_durations(milliseconds: int) -> None:
    """Whole milliseconds read back as they were printed."""
    duration_ns = milliseconds * 1_000_000

    assert duration_ns == parse_duration(format_duration(duration_ns))


def test_under() -> None:
    """Absolute paths of the machine are found below its root."""
    assert Path("/tree/var/lib") == under(Path("/tree"), Path("/var/lib"))
    assert Path("/var/lib") == under(Path("/"), Path("/var/lib"))


# ---- reservations ------------------------------------------------------------------------------------------------


def machine(*nodes: NumaNode) -> Topology:
    """These nodes."""
    return Topology({n.id: n for n in nodes})


def node(number: int, memory: int, *, pool_pages: int = 0, kind: NodeKind = NodeKind.MEMORY) -> NumaNode:
    """A node with 2 MiB pages."""
    pool = HugepagePool(2 * MIB, pool_pages, pool_pages, 0)
    return NumaNode(NodeId(number), CpuSet.of(number), kind, memory, pools=(pool,))


def test_default_reservation() -> None:
    """Each node with memory keeps its part, at least the minimum, and nothing of its hugepages."""
    topology = machine(node(0, 100 * GIB), node(3, GIB), node(7, 0, kind=NodeKind.MEMORYLESS))

    assert reserved_bytes(Config(), topology) == {0: {MEMORY: 5 * GIB}, 3: {MEMORY: 64 * MIB}}


def test_default_on_a_small_node() -> None:
    """A default never exceeds what a node has beside its pools."""
    topology = machine(node(0, 32 * MIB), node(1, GIB, pool_pages=500), node(2, GIB, pool_pages=600))

    assert reserved_bytes(Config(), topology) == {0: {MEMORY: 32 * MIB}, 1: {MEMORY: 24 * MIB}, 2: {MEMORY: 0}}


def test_named_reservation() -> None:
    """What is named stands instead of the fraction, hugepages beside it, also on nodes that are not there."""
    nodes = {
        NodeId(0): {MEMORY: 3 * GIB, PAGES_2M: 2 * MIB},
        NodeId(1): {PAGES_2M: 4 * MIB},
        NodeId(5): {MEMORY: GIB},
        NodeId(6): {MEMORY: 0},
    }
    config = Config(reserved=Reserved(nodes=nodes))
    topology = machine(node(0, 100 * GIB), node(1, 100 * GIB))

    assert reserved_bytes(config, topology) == {
        0: {MEMORY: 3 * GIB, PAGES_2M: 2 * MIB},
        1: {MEMORY: 5 * GIB, PAGES_2M: 4 * MIB},
        5: {MEMORY: GIB},
    }


def test_only_usable_nodes() -> None:
    """Nodes that serve no containers keep nothing."""
    topology = machine(node(0, 100 * GIB), node(1, 100 * GIB, kind=NodeKind.CPU_LESS))

    assert reserved_bytes(Config(), topology, NodeSet.of(0)) == {0: {MEMORY: 5 * GIB}}


def test_nothing_reserved() -> None:
    """A fraction and minimum of zero keep nothing."""
    config = replace(Config(), reserved=Reserved(0, 0))

    assert reserved_bytes(config, machine(node(0, GIB))) == {0: {MEMORY: 0}}
