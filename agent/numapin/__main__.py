"""``python -m numapin``."""

from numapin.cli.main import entry

if __name__ == "__main__":
    entry()
