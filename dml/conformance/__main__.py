"""The command `python -m dml.conformance`."""

import sys

from dml import conformance, processes

if __name__ == "__main__":
    with processes.safe_output():
        sys.exit(conformance.main())
