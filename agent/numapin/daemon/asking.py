"""
What the planner is asked about a container that has no pin yet.

Owns: when pod scope applies, and when what it held before binds it no more. Must never: change the ledger.
"""

from __future__ import annotations

from numapin.daemon.ledger import Ledger
from numapin.daemon.machine import Machine
from numapin.model.container import ContainerRecord
from numapin.model.memory import Books, MemoryType, rest_of, shared_of
from numapin.model.plan import Plan, Refusal, Request, Scope
from numapin.planner.accounting import release
from numapin.planner.classify import pod_request
from numapin.planner.placement import place
from numapin.planner.pod_scope import place_in_pod
from numapin.planner.pod_shared import place_beside, place_sharing


def ask_anew(
    machine: Machine, ledger: Ledger, record: ContainerRecord, request: Request, borrowed: frozenset[MemoryType]
) -> Plan | Refusal:
    """
    The answer under the configured scope; what the container's owner holds already stays where it is.

    On nodes without memory now it does so only if nothing else can be had, or while somebody runs there: a container
    that was started again has no pages yet, so it takes others, and waits only where it cannot.
    """
    if _holds_on_lost_nodes(machine, ledger, request):
        given_up = [request.owner]
        if machine.config.scope is Scope.POD and record.pod_uid is not None:
            # what only ended containers of the pod hold binds nobody; one that runs keeps the pod where it is
            given_up += [*ledger.ended_of_pod(record.pod_uid, request.owner), rest_of(record.pod_uid)]
        elsewhere = ask(machine, release(ledger.books, *given_up), record, request, borrowed)
        if isinstance(elsewhere, Plan):
            return elsewhere
    return ask(machine, ledger.books, record, request, borrowed)


def ask(
    machine: Machine, books: Books, record: ContainerRecord, request: Request, borrowed: frozenset[MemoryType]
) -> Plan | Refusal:
    """The planner's answer under the configured scope; the sizes of *borrowed* types are the pod's."""
    rules = machine.rules()
    if machine.config.scope is Scope.POD and record.pod_uid is not None:
        return place_in_pod(books, request, rules, pod_sizes=pod_request(record), borrowed=borrowed)
    if borrowed:
        return place_sharing(books, request, rules, borrowed, pod_request(record))
    if record.pod_uid is not None and shared_of(record.pod_uid) in books.assignments:
        return place_beside(books, request, rules, pod_request(record))
    return place(books, request, rules)


def _holds_on_lost_nodes(machine: Machine, ledger: Ledger, request: Request) -> bool:
    if ledger.holder(request.owner) is not None:
        return False  # the promise is a running container's, which appears a second time
    held = ledger.books.assignments.get(request.owner, ())
    return any(block.affinity - machine.topology.with_memory for block in held)
