"""How often the verdicts are wrong: python -m reports.calibrate

FP32 against FP32 with other seeds differs by chance alone, so WORSE and BETTER are false alarms there; an injected
loss of two margins must be found; and the interval of the speed of FP32 over itself must hold 1. All three are
counted on real runs, recorded in reports/results/calibration.json by `python -m scripts.run_calibration`, and the
first two in simulation, with the pairs' noise set to shares of the margin.

The promise, for comparisons of at least 5 pairs whose differences have a standard deviation of up to one margin: at
most 5% false alarms, at least 90% of such losses found, and at least 90% of such intervals hold 1. What 3 pairs, the
default, and noisier ones decide is shown beside it.
"""

import argparse
import sys

from reports.analysis import calibration


def main() -> int:
    """Print the rates as Markdown."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    rates = calibration.rates(*calibration.read_calibration(calibration.RECORD))
    rows = [calibration.TITLES, [":--", *["--:"] * (len(calibration.TITLES) - 1)], *(rate.cells for rate in rates.rows)]
    print("\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", *rates.notes]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
