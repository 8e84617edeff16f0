"""
What the API answers to each verb.

Owns: which document a verb means. Must never: look at who asks (`numapin.daemon.api` did), or block.
"""

from __future__ import annotations

from collections.abc import Mapping

from numapin.daemon.agent import Agent
from numapin.daemon.api import UnknownVerb
from numapin.daemon.api_peer import Peer
from numapin.daemon.explain import Known, explain_document
from numapin.daemon.nested import Nested
from numapin.daemon.plan_answer import plan_document
from numapin.daemon.release import release_document
from numapin.daemon.status import About, container_row, containers_document, status_document
from numapin.kernel.clock import Clock


class Answers:
    """The handler of an `ApiServer` for one agent."""

    def __init__(self, agent: Agent, about: About, nested: Nested, clock: Clock) -> None:
        self._agent = agent
        self._about = about
        self._nested = nested
        self._clock = clock

    def __call__(self, verb: str, params: Mapping[str, object], peer: Peer) -> object:
        """Plain JSON data. Raises: UnknownVerb, RequestFailed."""
        del peer
        agent, wall = self._agent, self._clock.wall_ns()
        views = list(agent.views.values())
        match verb:
            case "status":
                now, nested = self._clock.monotonic_ns(), self._nested.look(views)
                return status_document(agent, self._about, now_ns=now, wall_ns=wall, nested=nested)
            case "containers":
                return containers_document(agent, self._nested.look(views))
            case "explain":
                rows, inside = [container_row(view) for view in views], self._nested.look(views).rows
                ledger, retry = agent.ledger, agent.machine.config.retry_refused
                known = Known(
                    rows,
                    ledger.pins,
                    ledger.refusals,
                    inside,
                    ledger.misfits,
                    retry,
                    wall // 1_000_000_000,
                    {shortage.nodes: shortage.sentence for shortage in agent.shortages},
                )
                return explain_document(known, params.get("container"), {"from": "daemon"})
            case "release":
                return release_document(agent, params)
            case "plan":
                return plan_document(agent, wall_ns=wall)
            case _:
                raise UnknownVerb(verb)
