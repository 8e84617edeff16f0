"""
What an administrator should know about this run of the daemon as a whole, as findings.

Owns: which trouble stands now and which is over. Must never: find out anything itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from numapin.model.errors import ConfigError, NumapinError


@dataclass(slots=True)
class Troubles:
    """
    Findings that last as long as the daemon (*lasting*: code and sentence), and those that come and go: what the
    machine became and cannot be used as, which keys wait for a restart, which new configuration was refused.
    """

    lasting: list[tuple[str, str]] = field(default_factory=list)
    machine: str = ""
    restart: str = ""
    configuration: str = ""

    def add(self, code: str, sentence: str) -> None:
        """One that lasts."""
        self.lasting.append((code, sentence))

    def refuse(self, error: NumapinError) -> None:
        """A reload found *error*: the configuration from before stays in force."""
        said = str(error)
        if isinstance(error, ConfigError):
            said = "; ".join(": ".join(filter(None, problem)) for problem in error.problems)
        self.configuration = (
            f"the configuration was changed and not taken, the one from before is in force: {said}. Mend it, look "
            "with: numapin check-config, and reload again"
        )

    def wait_for_restart(self, keys: Sequence[str]) -> None:
        """*keys* were changed and only a restart takes them up; none waits any more when there are none."""
        named = ", ".join(keys)
        self.restart = f"a change of {named} takes effect after: systemctl restart numapin" if keys else ""

    def findings(self) -> list[tuple[str, str]]:
        """Code and sentence of each, the worst first."""
        return [
            *(("config-refused", sentence) for sentence in (self.configuration,) if sentence),
            *(("machine", sentence) for sentence in (self.machine,) if sentence),
            *(("needs-restart", sentence) for sentence in (self.restart,) if sentence),
            *self.lasting,
        ]
