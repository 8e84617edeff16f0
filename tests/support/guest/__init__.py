"""
The multi-NUMA test guest: a small Debian under QEMU, started from a snapshot.

``support.guest.machine.Guest`` is what tests use; ``python -m support.guest`` is for people.
This package knows nothing of numapin: whoever tests it puts it into the guest.
"""
