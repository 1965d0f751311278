"""`python -m ptq4snn`."""

from __future__ import annotations

import sys

from ptq4snn.cli import main

if __name__ == "__main__":
    sys.exit(main())
