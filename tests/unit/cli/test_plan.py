"""``numapin plan`` from the command line: options, where it is asked, manifests, exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from numapin.cli.main import main
from numapin.cli.plan_options import MAX_COUNT
from numapin.model.errors import ExitStatus
from support.api import serving
from support.machines import GIB, PAGE_2M, even, write_machine
from support.running import Numapin
from support.trees import write_tree

CHECKOUT = Path(__file__).parents[3]
POD = """
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop}
spec:
  initContainers:
  - {name: restore, resources: {limits: {cpu: 1, memory: 2Gi}}}
  containers:
  - {name: main, resources: {limits: {cpu: "4", memory: MEMORY, hugepages-2Mi: 512Mi}}}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two nodes of 16 GiB, of which 2 GiB are pages of 2 MiB."""
    return write_machine(tmp_path / "machine", even(2, memory=16 * GIB, pools={PAGE_2M: 1024}))


def plan(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    """Exit status, output, errors."""
    status = main(["plan", *map(str, args)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


# ---- containers ------------------------------------------------------------------------------------------------


def test_it_fits(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The node, why, and the table, with exit 0."""
    status, out, err = plan(capsys, "--root", root, "--memory", "10Gi")

    assert (status, err) == (0, "")
    assert out.splitlines()[:2] == [
        f"On an empty machine ({root}), policy restricted:",
        "  It would be pinned to node 0.",
    ]
    assert "What would change that" not in out


def test_it_does_not_fit(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 5, the refusal, and what would change it."""
    status, out, _ = plan(capsys, "--root", root, "--memory", "40Gi")

    assert status == ExitStatus.DOES_NOT_FIT
    assert "It would be refused: needs 40 GiB; node 0 has 13.2 GiB free, node 1 13.2 GiB" in out
    assert "- with a memory limit of 13.2 GiB or less it would fit on node 0 now" in out


def test_where_the_first_does_not_fit(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of none that fits nobody comes next, and nothing was placed before."""
    _, none, _ = plan(capsys, "--root", root, "--memory", "40Gi", "--count", 2)
    _, one, _ = plan(capsys, "--root", root, "--memory", "20Gi", "--count", 2)

    assert "  None of 2 would fit; the first would be refused: needs 40 GiB; " in none
    assert "The nodes before any was placed:" in none
    assert "  1 of 2 would fit: 1 on nodes 0-1; the next would be refused: needs 20 GiB; " in one
    assert "The nodes after 1 was placed:" in one


def test_not_all_fit(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 5 too when only some of --count fit, and how many do."""
    status, out, _ = plan(capsys, "--root", root, "--memory", "6Gi", "--count", 9, "-o", "json")
    answer = json.loads(out)

    assert status == ExitStatus.DOES_NOT_FIT
    assert (answer["kind"], answer["apiVersion"], answer["fits"], answer["count"]) == ("Plan", "numapin/v1", 4, 9)


@pytest.mark.parametrize(
    ("size", "expected"),
    [("1.5Gi", 3 * GIB // 2), ("1536Mi", 3 * GIB // 2), ("2G", 2 * 10**9), ("1e3", 1000), ("1073741824", GIB)],
)
def test_sizes(root: Path, capsys: pytest.CaptureFixture[str], size: str, expected: int) -> None:
    """Quantities are read as Kubernetes reads them."""
    _, out, _ = plan(capsys, "--root", root, "--memory", size, "-o", "json")

    assert expected == json.loads(out)["request"]["memory"]


def test_every_page_size(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any page size may be named, in any unit, with the value beside it or after =."""
    for given in (["--hugepages-2Mi", "1Gi"], ["--hugepages-2048Ki=1Gi"], ["--hugepages-2097152", "1073741824"]):
        status, out, _ = plan(capsys, "--root", root, "--memory", "1Gi", *given, "-o", "json")

        assert (status, json.loads(out)["request"]) == (0, {"hugepages-2Mi": GIB, "memory": GIB})
    status, out, _ = plan(capsys, "--root", root, "--memory", "1Gi", "--hugepages-64Ki", "1Mi")

    assert (status, "no node has memory of type hugepages-64Ki" in out) == (ExitStatus.DOES_NOT_FIT, True)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "say what to place"),
        (["--hugepages-2Mi", "2Mi"], "say what to place"),
        (["--memory", "0"], "size '0' must be above zero"),
        (["--memory", "-5Gi"], "size '-5Gi' must be above zero"),
        (["--memory", "1.5"], "size '1.5' is not a whole number of bytes"),
        (["--memory", "1e30"], "is above 9223372036854775807 bytes"),
        (["--memory", "8Ei"], "is above 9223372036854775807 bytes"),
        (["--memory", "15GB"], "'15GB' is not a size; write 15G, or 15Gi for units of 1024"),
        (["--memory", "1Gi", "--socket", "x"], "--socket does not go with --root"),
        (["--memory", "9" * 200], "is not a size"),
        (["--memory", "1Gi", "--hugepages-3Mi", "6Mi"], "'3Mi' is no page size"),
        (["--memory", "1Gi", "--hugepages-", "6Mi"], "is not a size"),
        (["--memory", "1Gi", "--hugepages-2Mi", "3Mi"], "3145728 bytes are not whole pages of 2Mi"),
        (["--memory", "1Gi", "--hugepages-2Mi", "2Mi", "--hugepages-2048Ki", "2Mi"], "asked for twice"),
        (["--memory", "1Gi", "--count", "0"], f"'0' is not a number from 1 to {MAX_COUNT}"),
        (["--memory", "1Gi", "--count", "-1"], f"'-1' is not a number from 1 to {MAX_COUNT}"),
        (["--memory", "1Gi", "--count", "1" * 50], f"is not a number from 1 to {MAX_COUNT}"),
        (["--memory", "1Gi", "--policy", "strict"], "invalid choice: 'strict'"),
        (["--memory", "1Gi", "--cpus", "3-1"], "reversed range"),
        (["--memory", "1Gi", "--cpus", "99"], "99 are not CPUs of this machine (0-3)"),
        (["--memory", "1Gi", "--nodes-allowed", "x"], "'x' is not an id"),
        (["--memory", "1Gi", "--nodes-allowed", ""], "names nothing"),
        (["--memory", "1Gi", "--nodes-allowed", "7"], "node 7 is not one of the nodes in the books (0-1)"),
        (["--memory", "1Gi", "--scope", "pod"], "--scope goes with --pod only"),
        (["--pod", "x", "--memory", "1Gi"], "--memory does not go with --pod"),
        (["--pod", "x", "--count", "2"], "--count does not go with --pod"),
        (["--memory", "1Gi", "--checkpoint", "x"], "not allowed with argument"),
    ],
)
def test_usage_errors(root: Path, capsys: pytest.CaptureFixture[str], args: list[str], says: str) -> None:
    """What cannot be meant is exit 2 and a sentence that names the value."""
    status, out, err = plan(capsys, "--root", root, *args)

    assert (status, out, says in err) == (ExitStatus.USAGE, "", True), err
    assert "Traceback" not in err


# ---- where it is asked -------------------------------------------------------------------------------------------


def test_no_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a daemon exit 3 names the other ways to ask."""
    status, _, err = plan(capsys, "--socket", tmp_path / "no.sock", "--memory", "1Gi")

    assert status == ExitStatus.NOT_RUNNING
    assert "plan without it: --checkpoint /var/lib/numapin/state.json" in err


def test_another_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An answer that is no basis is one sentence."""
    with serving(tmp_path / "api.sock", lambda verb, params, peer: {"verb": verb}):
        status, _, err = plan(capsys, "--socket", tmp_path / "api.sock", "--memory", "1Gi")

    assert (status, "is no basis for a plan" in err) == (ExitStatus.FAILURE, True)


def test_wrong_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint that is missing, damaged, a link or no file is named with what it is, with exit 1."""
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("bad.json")
    wrong = {
        "no.json": "no such file",
        "bad.json": "checksum",
        "link.json": "name its target",
        ".": "no regular file",
    }
    for name, says in wrong.items():
        status, _, err = plan(capsys, "--checkpoint", tmp_path / name, "--memory", "1Gi")

        assert (status, says in err, str(tmp_path / name) in err) == (ExitStatus.FAILURE, True, True)


def test_a_wrong_configuration(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The configuration below the root counts, and a wrong one is exit 6."""
    write_tree(root, {"etc/numapin/numapin.toml": 'policy = "strict"\n'})

    assert plan(capsys, "--root", root, "--memory", "1Gi")[0] == ExitStatus.CONFIG


def test_a_root_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty directory is no machine."""
    status, _, err = plan(capsys, "--root", tmp_path, "--memory", "1Gi")

    assert (status, "cannot read" in err) == (ExitStatus.FAILURE, True)


def test_on_a_running_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real daemon's books are asked; after a release of all the answer is exit 5; explain finds nobody."""
    from support.cgroup_trees import CgroupTree

    machine = write_machine(tmp_path / "machine", even(2, memory=16 * GIB))
    CgroupTree(machine, nodes="0-1")
    daemon = Numapin(tmp_path, root=machine)
    daemon.start()
    try:
        live = plan(capsys, "--socket", daemon.socket, "--memory", "10Gi", "--cpus", "2-3", "-o", "json")
        unknown = main(["explain", "nobody", "--socket", str(daemon.socket)])
        said = capsys.readouterr().err
        assert main(["release", "--all", "--socket", str(daemon.socket)]) == 0
        capsys.readouterr()
        after = plan(capsys, "--socket", daemon.socket, "--memory", "10Gi")
        (tmp_path / "pod.json").write_text(json.dumps(manifest("1Gi")))
        pod = plan(capsys, "--socket", daemon.socket, "--pod", tmp_path / "pod.json")
    finally:
        daemon.kill()
    answer = json.loads(live[1])

    assert (live[0], answer["placements"][0]["nodes"], answer["source"]["from"]) == (0, [1], "daemon")
    assert (unknown, "no container 'nobody' is known" in said) == (ExitStatus.FAILURE, True)
    said = "But not now: numapin release --all: nothing is pinned until the daemon is started again."
    assert (after[0], after[1].splitlines()[1:3]) == (5, ["  It would be pinned to node 0.", f"  {said}"])
    assert (pod[0], pod[1].splitlines()[2:4]) == (5, [said, ""])


# ---- pods --------------------------------------------------------------------------------------------------------


def test_a_pod_in_yaml(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The kubelet's verdict and a row per container; exit 5 with its word when it is rejected."""
    fits = write_tree(tmp_path, {"fits.yaml": POD.replace("MEMORY", "10Gi")}) / "fits.yaml"
    large = write_tree(tmp_path, {"large.yml": POD.replace("MEMORY", "80Gi")}) / "large.yml"
    status, out, _ = plan(capsys, "--root", root, "--pod", fits, "--policy", "best-effort")

    assert status == 0
    assert [line.rstrip() for line in out.splitlines()] == [
        f"A kubelet on an empty machine ({root}), policy best-effort, container scope:",
        "shop/db (Guaranteed): admitted",
        "",
        "CONTAINER  KIND  REQUEST                         NODES  VERDICT",
        "restore    init  2 GiB                           0      admitted",
        "main       app   10 GiB + 512 MiB hugepages-2Mi  0      admitted",
    ]
    status, out, _ = plan(capsys, "--root", root, "--pod", large, "-o", "json")
    answer = json.loads(out)

    assert (status, answer["kind"], answer["reason"]) == (5, "PodPlan", "UnexpectedAdmissionError")
    assert [c["verdict"] for c in answer["containers"]] == ["fits", "UnexpectedAdmissionError"]


def manifest(memory: Any, **more: Any) -> dict[str, Any]:
    """A Pod of one container."""
    limits = {"cpu": 1, "memory": memory}
    return {"kind": "Pod", "spec": {"containers": [{"name": "a", "resources": {"limits": limits}}]}, **more}


def test_a_pod_in_json(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON is read whatever the file is called, and numbers keep their digits."""
    for name, memory, request in (("pod.json", "1Gi", GIB), ("pod", 1024, 1024), ("pod2.json", 0.1, None)):
        (tmp_path / name).write_text(json.dumps(manifest(memory)))
        _, out, _ = plan(capsys, "--root", root, "--pod", tmp_path / name, "-o", "json")

        assert json.loads(out)["containers"][0]["request"] == (None if request is None else {"memory": request})


def test_a_pod_from_standard_input(root: Path, tmp_path: Path) -> None:
    """``kubectl get pod … -o json | numapin plan --pod -``."""
    done = subprocess.run(
        [sys.executable, "-m", "numapin", "plan", "--root", str(root), "--pod", "-", "-o", "json"],
        input=json.dumps(manifest("1Gi")), cwd=CHECKOUT / "agent", capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert json.loads(done.stdout)["verdict"] == "admitted"


def test_standard_input_that_is_closed(root: Path) -> None:
    """Nothing can be read from it, which is said as a usage error."""
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -m numapin plan --root "$1" --pod - <&-', sys.executable, str(root)],
        cwd=CHECKOUT / "agent", capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr.count("\n")) == (ExitStatus.USAGE, 1)
    assert "--pod -: standard input is closed" in done.stderr


LETTERS = "abcdefghi"
BOMB = "a: &a [lol]\n" + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in pairwise(LETTERS))
MERGES = "a: &a {x: 1}\n" + "".join(f"{b}: &{b}\n  <<: [{','.join([f'*{a}'] * 9)}]\n" for a, b in pairwise(LETTERS))
WIDE = "a: &a {" + ", ".join(f"k{i}: 1" for i in range(400)) + "}\nb: {<<: [" + ",".join(["*a"] * 400) + "]}\n"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", BOMB + "kind: *i\nspec: {}\n", "kind: this is [[["),
        ("a.yaml", MERGES + "kind: Job\nspec: {}\n", "a.yaml: "),
        ("a.yaml", WIDE, "merge keys bring in more than 100000 keys"),
        ("a.yaml", "a: &a\n  <<: *a\n  kind: Pod\nkind: *a\n", "kind: this is {'kind': 'Pod'}"),
        ("a.json", "{", "not JSON"),
        ("a.yaml", "{", "not YAML"),
        ("a.yaml", "a: b: c", "not YAML"),
        ("a.yaml", "kind: Pod\n---\nkind: Pod\n", "holds 2 documents; give one Pod"),
        ("a.yaml", "", "holds 0 documents"),
        ("a.yaml", "!!python/object/apply:os.system ['true']", "not YAML"),
        ("a.yaml", "kind: Deployment\nspec: {template: {}}", "not a Pod; take the pod out of its template"),
        ("a.json", json.dumps(manifest("-1")), "spec.containers[0].resources.limits.memory: '-1' is negative"),
        ("a.json", "[" * 100_000, "a.json"),
        ("a.yaml", "\udcff", "not UTF-8 text"),
        ("a.json", " " * (5 << 20), "a manifest is at most"),
    ],
)
def test_wrong_manifests(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, says: str
) -> None:
    """A file that is no Pod is exit 2 and one sentence with the file and the key."""
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    status, _, err = plan(capsys, "--root", root, "--pod", tmp_path / name)

    assert (status, says in err, err.count("\n")) == (ExitStatus.USAGE, True, 1), err


def test_a_file_that_is_not_there(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1 with the path and the reason."""
    for path in (tmp_path / "no.yaml", tmp_path):
        status, _, err = plan(capsys, "--root", root, "--pod", path)

        assert (status, f"cannot read {path}" in err) == (ExitStatus.FAILURE, True)


def test_without_pyyaml(root: Path, tmp_path: Path) -> None:
    """Where PyYAML is missing the message says how this Python gets it, and JSON still works."""
    (tmp_path / "a.yaml").write_text(POD.replace("MEMORY", "1Gi"))
    (tmp_path / "a.json").write_text(json.dumps(manifest("1Gi")))
    code = "import sys; sys.modules['yaml'] = None; from numapin.cli.main import main; sys.exit(main(sys.argv[1:]))"
    ends = {}
    for name in ("a.yaml", "a.json"):
        ends[name] = subprocess.run(
            [sys.executable, "-c", code, "plan", "--root", str(root), "--pod", str(tmp_path / name)],
            cwd=CHECKOUT / "agent", capture_output=True, text=True, check=False,
        )  # fmt: skip

    in_venv = sys.prefix != sys.base_prefix
    says = f"{sys.prefix}/bin/python -m pip install PyYAML" if in_venv else "apt install python3-yaml"
    assert (ends["a.yaml"].returncode, says in ends["a.yaml"].stderr) == (1, True)
    assert (ends["a.json"].returncode, ends["a.json"].stderr) == (0, "")


def test_names_are_tamed(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of a manifest cannot steer the terminal."""
    pod = manifest("1Gi", metadata={"name": "x\x1b[2J\nadmitted"})
    pod["spec"]["containers"][0]["name"] = "a\x1b[31m\nb"
    (tmp_path / "a.json").write_text(json.dumps(pod))
    _, out, _ = plan(capsys, "--root", root, "--pod", tmp_path / "a.json")

    assert "\x1b" not in out
    assert "x?[2J?admitted (Guaranteed): admitted" in out
    assert isinstance(sys.stdout, io.TextIOBase)


def test_an_amount_of_cpu_that_is_none(tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong amount of CPU is told how CPUs are written, not sizes."""
    file = tmp_path / "pod.yaml"
    file.write_text(POD.replace("MEMORY", "1Gi").replace('"4"', "0.1x"))
    status, _, err = plan(capsys, "--root", root, "--pod", file)

    assert status == ExitStatus.USAGE
    assert err.endswith(".cpu: '0.1x' is not an amount of CPU; write for example 2, 0.5 or 500m\n")


def test_what_is_wrong_with_yaml_is_one_short_line(
    tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The problem and its line, without PyYAML's picture of the place."""
    file = tmp_path / "pod.yaml"
    file.write_text("kind: Pod\nspec:\n  a: 1\n b: 2\n")
    _, _, err = plan(capsys, "--root", root, "--pod", file)

    assert (
        err
        == f"numapin: {file}: not YAML: expected <block end>, but found '<block mapping start>' (line 4, column 2)\n"
    )
