"""``python -m tests.conformance``: see `command`."""

from .command import main

if __name__ == "__main__":
    raise SystemExit(main())
