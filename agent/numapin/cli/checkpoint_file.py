"""Reading a checkpoint that somebody named: what is wrong with the name becomes a sentence."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from numapin.model.errors import CheckpointUnreadable, NotPermitted
from numapin.state.checkpoint import read_checkpoint

_WORDS = {
    errno.ELOOP: "it is a symbolic link, which is not followed (ELOOP); name its target",
    errno.EINVAL: "it is no regular file (EINVAL)",
    errno.ENXIO: "it is no regular file (ENXIO)",
}


def read_named(path: Path) -> bytes:
    """
    Content of the file.

    Raises:
        NotPermitted: This user may not read it.
        CheckpointUnreadable: Missing, a symbolic link, no regular file, too large, or a fault of the disk.
    """
    try:
        return read_checkpoint(path)
    except FileNotFoundError as exc:
        raise CheckpointUnreadable(str(path), "there is no such file; a daemon that ran once has written it") from exc
    except OSError as exc:
        code = exc.errno or 0
        reason = _WORDS.get(code) or f"{os.strerror(code)} ({errno.errorcode.get(code, code)})"
        if code in (errno.EACCES, errno.EPERM):
            raise NotPermitted(f"cannot read {path}: {reason}; run this with sudo") from exc
        raise CheckpointUnreadable(str(path), f"cannot be read: {reason}") from exc
