"""numapin: a NUMA memory manager for Linux hosts that run containers."""

__version__ = "0.1.0"
