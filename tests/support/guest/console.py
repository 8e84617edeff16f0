"""The terminal on the guest's serial console."""

from __future__ import annotations

import os
import select
import shutil
import socket
import sys
import termios
import tty
from pathlib import Path
from typing import Final

LEAVE_KEY: Final = b"\x1d"
LEAVE_KEY_NAME: Final = "Ctrl-]"


def attach(console: Path) -> None:
    """
    The terminal is the guest's console until the leave key, or the end of the input.

    Without a terminal on standard input its bytes go in as they are.

    Raises:
        OSError: Nobody listens on the socket *console*.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(console))
        terminal = sys.stdin.fileno()
        if not os.isatty(terminal):
            _relay(connection, terminal)
            return
        before = termios.tcgetattr(terminal)
        tty.setraw(terminal)
        try:
            connection.sendall(b"\r")  # asks the shell for a new prompt
            _relay(connection, terminal)
        finally:
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def size_command() -> str:
    """A shell command that tells the guest's console how large this terminal is."""
    columns, rows = shutil.get_terminal_size()
    return f"stty -F /dev/ttyS0 rows {rows} columns {columns}"


def _relay(connection: socket.socket, terminal: int) -> None:
    """Bytes both ways, until the leave key, end of input or end of QEMU."""
    output = sys.stdout.fileno()
    while True:
        ready, _, _ = select.select([connection.fileno(), terminal], [], [])
        if connection.fileno() in ready:
            part = connection.recv(1 << 16)
            if not part:
                return
            os.write(output, part)
        if terminal in ready:
            typed = os.read(terminal, 1024)
            before, key, _ = typed.partition(LEAVE_KEY)
            connection.sendall(before)
            if key or not typed:
                return
