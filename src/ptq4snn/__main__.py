"""`python -m ptq4snn`."""

from __future__ import annotations

import os
import sys

from ptq4snn.cli import main

if __name__ == "__main__":
    code = main()
    if "WORLD_SIZE" in os.environ:  # of torchrun: threads that torch leaves behind may abort an ordinary end
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
