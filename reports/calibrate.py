"""How often the verdicts are wrong: python -m reports.calibrate

FP32 against FP32 with other seeds differs by chance alone: WORSE and BETTER are false alarms there. An injected loss of
two margins must be found, and the interval of the speed of FP32 over itself must hold 1. All three are counted on real
runs, recorded by `python -m scripts.run_calibration`; the first two in simulation too, with noise set in margins.
"""

import argparse
import sys

from reports.analysis import calibration
from reports.pages.text_table import Table


def main() -> int:
    """Print the rates as Markdown."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    rates = calibration.rates(*calibration.read_calibration(calibration.RECORD))
    print(Table(calibration.TITLES, [rate.cells for rate in rates.rows]).markdown(), "", *rates.notes, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
