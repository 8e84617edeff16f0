"""Effects on the machine: the only readers and writers of kernel files."""
