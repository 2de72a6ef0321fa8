"""How often the verdicts are wrong: python -m reports.calibrate

FP32 against FP32 differs by chance alone, and an injected loss must be found: counted in simulation and on real runs,
which `python -m scripts.run_calibration` and `python -m scripts.run_speed_calibration` record.
"""

from reports.analysis import calibration
from reports.command import parser, run
from reports.pages.text_table import Table


def main() -> int:
    """Print the rates as Markdown."""
    parser("reports.calibrate", __doc__).parse_args()
    accuracies = calibration.read_calibration(calibration.RECORD)
    rates = calibration.rates(*accuracies, *calibration.read_speed_calibration(calibration.SPEED_RECORD))
    print(Table(calibration.TITLES, [rate.cells for rate in rates.rows]).markdown(), "", *rates.notes, sep="\n")
    return 0


if __name__ == "__main__":
    run(main)
