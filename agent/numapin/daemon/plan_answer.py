"""
The daemon's answer to ``plan``: the basis of a decision, and whether one would be made at all.

Owns: when books are no basis. Must never: plan itself; the command does, so that no question holds the loop.
"""

from __future__ import annotations

from numapin.daemon.agent import Agent
from numapin.daemon.basis import basis_document
from numapin.daemon.undo import ALL_RELEASED
from numapin.model.errors import RequestFailed


def plan_document(agent: Agent, *, wall_ns: int) -> dict[str, object]:
    """
    What the daemon knows now, with a note where it would promise nothing all the same.

    Raises:
        RequestFailed: The checkpoint was not read yet, so nobody knows what is promised.
        KernelReadError, KernelFormatError: The hugepage pools cannot be read.
    """
    ledger = agent.ledger
    if ledger.held and ledger.save_error is not None:
        raise RequestFailed(
            ledger.save_error.code,
            f"nobody knows what is promised, so nothing can be said about what would fit: {ledger.save_error}",
        )
    note = ALL_RELEASED if agent.undo.everything else str(ledger.save_error or "")
    return basis_document(agent.machine, ledger.books, wall_ns=wall_ns, note=note, left=agent.untouched().leave)
