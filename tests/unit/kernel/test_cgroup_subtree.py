"""Order of writes in a v1 subtree: `numapin.kernel.cgroup_subtree`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numapin.kernel.cgroup_subtree import (
    Earlier,
    narrower_children,
    restored_targets,
    subtree_targets,
    subtree_writes,
)
from numapin.model.nodeset import NodeSet

Masks = dict[str, NodeSet]


def masks_of(**texts: str) -> Masks:
    """Node sets by path; ``top`` is the outermost cgroup, ``a_b`` is ``/a/b``."""
    return {"" if k == "top" else "/" + k.replace("_", "/"): NodeSet.parse(v) for k, v in texts.items()}


def written(masks: Masks, target: str) -> list[tuple[str, str]]:
    """Path and nodes of each write, in order."""
    writes = subtree_writes(masks, subtree_targets(masks, NodeSet.parse(target)))
    return [(p, str(n)) for p, n in writes]


def test_shrinking_starts_at_the_bottom() -> None:
    """Deepest first, then the container (B049)."""
    assert written(masks_of(top="0-1", t1="0-1", t1_l1="1"), "0") == [
        ("/t1/l1", "0-1"),
        ("/t1/l1", "0"),
        ("/t1", "0"),
        ("", "0"),
    ]


def test_a_move_widens_first() -> None:
    """From {0} to {1} the container is widened, the children moved, the container shrunk (B049)."""
    assert written(masks_of(top="0", t1="0"), "1") == [("", "0-1"), ("/t1", "0-1"), ("/t1", "1"), ("", "1")]


def test_widening_starts_at_the_top() -> None:
    """A child never has more than its parent, so the parent gets it first."""
    assert written(masks_of(top="0", t1="0"), "0-3") == [("", "0-3"), ("/t1", "0-3")]


def test_nothing_to_do() -> None:
    """What is right already is not written (B127)."""
    assert written(masks_of(top="0-1", t1="0-1", t1_l1="1"), "0-1") == []


@pytest.mark.parametrize(
    ("child", "target", "after"), [("2-3", "1-2", "2"), ("3", "1-2", "1-2"), ("0-3", "1-2", "1-2"), ("1", "0-3", "1")]
)
def test_a_childs_own_choice(child: str, target: str, after: str) -> None:
    """A child with fewer nodes than its parent keeps what is left of them."""
    targets = subtree_targets(masks_of(top="0-3", t1=child), NodeSet.parse(target))

    assert str(targets["/t1"]) == after


@st.composite
def subtrees(draw: st.DrawFn) -> tuple[Masks, NodeSet]:
    """A subtree a v1 kernel allows, and a target."""
    masks = {"": NodeSet(draw(st.integers(1, 63)))}
    for k in range(draw(st.integers(0, 6))):
        above = draw(st.sampled_from(sorted(masks)))
        ids = draw(st.sets(st.sampled_from(masks[above].ids()), min_size=1))
        masks[f"{above}/{k}"] = NodeSet.from_ids(ids)
    return dict(sorted(masks.items())), NodeSet(draw(st.integers(1, 63)))


@given(subtrees())
def test_every_step_is_one_a_kernel_accepts(case: tuple[Masks, NodeSet]) -> None:
    """At any moment each child is inside its parent and not empty, and the end is the target."""
    masks, target = case
    targets = subtree_targets(masks, target)
    now = dict(masks)
    for path, nodes in subtree_writes(masks, targets):
        assert nodes
        now[path] = nodes
        for child in now:
            if child:
                assert now[child].issubset(now[child.rpartition("/")[0]])

    assert now == targets
    assert now[""] == target


def stopped(masks: Masks, targets: Masks, at: int) -> Masks:
    """The subtree after the first *at* writes on the way to *targets*."""
    return masks | dict(subtree_writes(masks, targets)[:at])


@given(subtrees(), st.integers(0, 20), st.integers(0, 20), st.booleans())
def test_what_was_remembered_comes_back(case: tuple[Masks, NodeSet], at: int, back: int, resumed: bool) -> None:
    """
    With the narrower children's masks remembered, the way back ends exactly where the way there began (B050):
    also when the way there was stopped anywhere, or (inside its old nodes, as a first pin is) taken up again after
    that, and the way back was stopped too.
    """
    masks, target = case
    earlier = Earlier(masks[""], target, narrower_children(masks))
    pinned = stopped(masks, subtree_targets(masks, target), at)
    if resumed and target.issubset(masks[""]):
        pinned = subtree_targets(pinned, target)
    pinned = stopped(pinned, restored_targets(pinned, masks[""], earlier), back)

    assert masks == restored_targets(pinned, masks[""], earlier)


def test_a_remembered_mask_that_fits_no_more() -> None:
    """A child's old nodes outside of what its parent has now are passed over: it follows."""
    pinned = masks_of(top="0", t1="0")
    earlier = Earlier(NodeSet.parse("0-2"), NodeSet.of(0), masks_of(t1="2"))

    assert masks_of(top="0-1", t1="0-1") == restored_targets(pinned, NodeSet.of(0, 1), earlier)


def test_a_child_that_somebody_else_wrote() -> None:
    """Neither its old nodes nor what a write of ours made of them: it keeps what it has."""
    pinned = masks_of(top="0-1", t1="1", new="0")
    earlier = Earlier(NodeSet.parse("0-3"), NodeSet.parse("0-1"), masks_of(t1="0"))

    assert masks_of(top="0-3", t1="1", new="0") == restored_targets(pinned, NodeSet.parse("0-3"), earlier)
