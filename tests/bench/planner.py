"""
How long one decision takes: nodes by memory types by policy, beside the listing of every set.

    python tests/bench/planner.py

Milliseconds of processor time, the median of several decisions on a used machine: a fourth of the nodes hold
single-node containers, some are tied into groups, and CPU and device hints narrow the choice. A request's first
decision up to 16 nodes is not counted, as is usual where the time is below a millisecond. "worst" is the slowest
request of any policy; "listing" is the naive search of the tests under restricted, as far as it goes in this run;
"kubelet" is what the kubelet's own code takes for one admission by the design's figures, measured on another machine.
A second table (`bench.mixes`) has the slowest decisions of the daemon for every mix of hints and books.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time

ROOT = Path(__file__).resolve().parent.parent.parent
for source in (ROOT / "agent", ROOT / "tests"):
    if str(source) not in sys.path:
        sys.path.insert(0, str(source))

from bench import mixes  # noqa: E402  the paths above come first
from numapin.model.memory import Block, Books, Owner  # noqa: E402  the paths above come first
from numapin.model.nodeset import NodeSet  # noqa: E402
from numapin.model.plan import Hint, ProviderHints, Request, Rules, TopologyPolicy  # noqa: E402
from numapin.planner.accounting import reserve  # noqa: E402
from numapin.planner.placement import place  # noqa: E402
from support.bruteforce import case_of, verdict  # noqa: E402
from support.strategies import KINDS, empty_books  # noqa: E402

NODES = (2, 4, 8, 16, 64, 256, 1024)
LISTED = 10
WARMED = 16
LIMITS_MS = {64: 10.0, 1024: 100.0}
KUBELET_MS = {2: (0.18, 0.18, 0.18), 4: (0.18, 0.18, 0.18), 8: (0.63, 14.0, 2300.0)}
"""What the kubelet takes for one admission by number of nodes, then of memory types (the design's figures)."""
GIB = 1 << 30


def used_machine(count: int, kinds: int) -> Books:
    """Nodes of 60 to 100 GiB per type, a fourth in single use, groups of two on large machines."""
    names = KINDS[:kinds]
    sizes = {n: {k: (60 + (n * 37 + i * 13) % 41) * GIB for i, k in enumerate(names)} for n in range(count)}
    books = empty_books(sizes)
    for n in range(count // 4):
        books = reserve(books, Owner("used", str(n)), tuple(Block(NodeSet.of(n), k, 30 * GIB) for k in names))
    for n in range(count // 4, count // 4 + min(8, count // 8) * 2, 2):
        blocks = tuple(Block(NodeSet.of(n, n + 1), k, 90 * GIB) for k in names)
        books = reserve(books, Owner("group", str(n)), blocks)
    return books


def requests(count: int, kinds: int) -> list[Request]:
    """One node's worth, a few nodes', a third of the machine, with hints and without."""
    names = KINDS[:kinds]
    cpus = tuple(Hint(NodeSet.of(n), True) for n in range(count // 2, min(count, count // 2 + 4)))
    everywhere = Hint(NodeSet.from_ids(range(count)), False)
    hints = (ProviderHints("cpu", (*cpus, everywhere)), ProviderHints("device /dev/a", (*cpus[:1], everywhere)))
    found = []
    for size in (40, 150, max(150, 25 * count)):
        for others in ((), hints):
            sizes = {k: size * GIB - i * (1 << 20) for i, k in enumerate(names)}
            found.append(Request(Owner("new", f"{size}"), sizes, hints=others))
    return found


def spent(decide: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    begin = process_time()
    decide()
    return (process_time() - begin) * 1000


def measured(count: int, kinds: int) -> tuple[dict[str, float], float, float | None]:
    """Median per policy, the worst of all, and the listing's median."""
    books, asked = used_machine(count, kinds), requests(count, kinds)
    rounds = 20 if count <= WARMED else 5 if count <= 64 else 1
    times: dict[str, float] = {}
    worst = 0.0
    for policy in TopologyPolicy:
        rules = Rules(policy)
        for request in asked if count <= WARMED else ():
            place(books, request, rules)
        each = [spent(lambda r=r, u=rules: place(books, r, u)) for r in asked for _ in range(rounds)]  # type: ignore[misc]
        times[policy] = median(each)
        worst = max(worst, *[min(each[i : i + rounds]) for i in range(0, len(each), rounds)])
    if count > LISTED:
        return times, worst, None
    rules = Rules(TopologyPolicy.RESTRICTED)
    return times, worst, median(spent(lambda r=r: verdict(case_of(books, r, rules))) for r in asked)  # type: ignore[misc]


def main() -> int:
    """Print the table; exit status 1 when a limit of the design is not held."""
    print("one decision, ms of processor time (median; worst is the slowest request of any policy)")
    print(f"{'nodes':>5} {'types':>5} " + " ".join(f"{p.value[:11]:>11}" for p in TopologyPolicy), end="")
    print(f" {'worst':>9} {'listing':>9} {'kubelet':>9}")
    failed = []
    for count in NODES:
        for kinds in (1, 2, 3):
            times, worst, listing = measured(count, kinds)
            row = " ".join(f"{times[p]:11.3f}" for p in TopologyPolicy)
            shown = f"{listing:9.2f}" if listing is not None else f"{'-':>9}"
            kubelet = KUBELET_MS[count][kinds - 1] if count in KUBELET_MS else None
            figure = f"{kubelet:9.2f}" if kubelet is not None else f"{'-':>9}"
            print(f"{count:5} {kinds:5} {row} {worst:9.3f} {shown} {figure}", flush=True)
            if kubelet is not None and (slowest := max(times.values())) > kubelet:
                failed.append(f"{count} nodes, {kinds} types: {slowest:.3f} ms is above the kubelet's {kubelet} ms")
            if worst > LIMITS_MS.get(count, float("inf")):
                failed.append(f"{count} nodes, {kinds} types: {worst:.1f} ms is above {LIMITS_MS[count]:.0f} ms")
    print()
    failed += mixes.main()
    for line in failed:
        print(f"not held: {line}")
    if not failed:
        print("held: 64 nodes below 10 ms, 1,024 nodes below 100 ms, 2 to 8 nodes not slower than the kubelet")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
