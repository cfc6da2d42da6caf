"""The command line as `python -m addnorm`."""

import sys

from addnorm.cli import main

if __name__ == "__main__":
    sys.exit(main())
