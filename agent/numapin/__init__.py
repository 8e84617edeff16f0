"""numapin: a NUMA memory manager for Linux hosts that run containers."""

__version__ = "0.1.0"
API_VERSION = "numapin/v1"
"""Of every document: API requests and answers, ``-o json``, the checkpoint."""
