"""``python -m torchvk_compile`` is the command ``torchvk``.

In: the process's arguments. Out: its exit status. Forbidden: anything else.
"""

import sys

from torchvk_compile.cli import main

if __name__ == "__main__":
    sys.exit(main())
