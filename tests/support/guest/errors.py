"""
What can go wrong with the test guest.

::

    GuestError
    ├── HostNotReady      a tool or a right is missing on this host
    ├── BuildFailed       the image could not be made
    ├── GuestTimeout      something did not happen in time
    ├── GuestDied         QEMU ended by itself
    ├── MonitorFailed     QEMU refused a command
    ├── AgentFailed       the guest's agent could not do what it was asked
    └── CommandFailed     a command in the guest ended with another status than 0

Every one that concerns a running guest carries the end of its serial console.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Completed:
    """
    How a command in the guest ended.

    ``status`` is its exit status, negative for the number of the signal that ended it.
    """

    status: int
    stdout: str
    stderr: str


class GuestError(Exception):
    """Any failure of the test guest or of its image."""


class HostNotReady(GuestError):
    """This host lacks something; *advice* says what to install or do."""

    def __init__(self, missing: str, advice: str) -> None:
        self.missing = missing
        self.advice = advice
        super().__init__(missing, advice)

    def __str__(self) -> str:
        return f"the test guest needs {self.missing}: {self.advice}"


class BuildFailed(GuestError):
    """One step of the image build ended badly; *detail* is the end of its output."""

    def __init__(self, step: str, detail: str) -> None:
        self.step = step
        self.detail = detail
        super().__init__(step, detail)

    def __str__(self) -> str:
        return f"building the guest image failed at {self.step}:\n{self.detail}"


class _AtConsole(GuestError):
    """A failure told together with the end of the guest's serial console."""

    def __init__(self, sentence: str, console: str) -> None:
        self.sentence = sentence
        self.console = console
        super().__init__(sentence, console)

    def __str__(self) -> str:
        return f"{self.sentence}\n--- end of the guest's console ---\n{self.console}"


class GuestTimeout(_AtConsole):
    """Something did not happen in time."""


class GuestDied(_AtConsole):
    """QEMU ended while it was needed; the sentence carries its last words."""


class MonitorFailed(_AtConsole):
    """QEMU answered a monitor command with an error."""


class AgentFailed(_AtConsole):
    """The guest's agent answered with an error (no such file, no such program, ...)."""


class CommandFailed(_AtConsole):
    """A command that was to succeed ended with another status than 0."""

    def __init__(self, script: str, completed: Completed, console: str) -> None:
        self.script = script
        self.completed = completed
        super().__init__(
            f"status {completed.status} from: {script}\nstdout: {completed.stdout}\nstderr: {completed.stderr}",
            console,
        )
