"""Make everything that is shown from the committed records: python -m reports.build

Reads reports/results/. Writes comparison.json, results.md, results.csv and report.html there, reports/README.md with
its figures and reports/index.html, and the tables between markers. Twice gives the same bytes. HTML is not committed.
"""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from reports.analysis import calibration
from reports.analysis.comparison import comparisons_in
from reports.analysis.reproduction import RESULTS, ROOT, reproductions
from reports.command import parser, run
from reports.overview import FORMATS, overview
from reports.pages import experiment_page, keys, overview_page, table
from reports.pages.engine_table import engine_table, memory_growth
from reports.pages.style import Section
from reports.records.comparison import Comparison
from reports.records.config import Experiment
from reports.records.estimates import QUICK
from reports.records.files import write_record, write_text
from reports.records.layout import COMPARISON


def between_markers(file: str, text: str, name: str, content: str) -> str:
    """The `text` of `file` with `content` between `<!-- name:begin -->` and `<!-- name:end -->`.

    Raises ValueError without the markers.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, begins, rest = text.partition(begin)
    _, ends, after = rest.partition(end)
    if not begins or not ends:
        raise ValueError(f"{file}: has no {begin if not begins else end}; the table '{name}' goes between the two")
    return f"{before}{begin}\n{content.strip()}\n{end}{after}"


def build(out: Path) -> dict[str, str]:
    """Write README.md, train/README.md and reports/ under `out`, from the records.

    Returns, by name, why experiments, and runs and figures of them, were left out. Raises ValueError naming what is
    wrong in a README.md, engine_benchmark.json, published.csv or a configuration; nothing is written then.
    """
    results = out / "reports" / "results"
    if results != RESULTS:
        shutil.copytree(RESULTS, results, dirs_exist_ok=True)
    comparisons, left_out = comparisons_in(results)
    measured = reproductions(results, comparisons)
    accuracies = calibration.read_calibration(results / calibration.RECORD.name)
    speeds = calibration.read_speed_calibration(results / calibration.SPEED_RECORD.name)
    blocks = [
        ("README.md", "results", _quick_start(comparisons.get(results / QUICK))),
        ("README.md", "published", f"Published numbers: {overview_page.reproduced(measured)}"),
        ("train/README.md", "engine", engine_table(results / "engine_benchmark.json")),
        ("train/README.md", "memory", memory_growth(results / "memory_growth.json")),
        ("train/README.md", "keys", keys.table(Experiment)),
    ]
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file, _, _ in blocks}
    for file, name, content in blocks:
        texts[file] = between_markers(file, texts[file], name, content)
    for folder, comparison in comparisons.items():
        write_record(folder / COMPARISON, comparison)
        experiment_page.write(folder, comparison)
    for file, text in texts.items():
        write_text(out / file, text)
    rates = calibration.rates(*accuracies, *speeds)
    overview_page.write(out / "reports", comparisons, left_out, measured, rates)
    unfit = {calibration.RECORD.name: accuracies[1], calibration.SPEED_RECORD.name: speeds[1]}
    return left_out | _incomplete(comparisons) | {file: reason for file, reason in unfit.items() if reason}


def _quick_start(comparison: Comparison | None) -> str:
    if comparison is None:
        return f"No record: {QUICK} was left out."
    section = Section("", table.results(comparison), table.notes(comparison), comparison.command)
    return f"**{comparison.experiment}** on {table.hardware(comparison)}\n\n{section.markdown()}"


def _incomplete(comparisons: Mapping[Path, Comparison]) -> dict[str, str]:
    """By experiment and precision, which of its runs and figures are in no table."""
    rows = [row for comparison in comparisons.values() for row in comparison.rows]
    return {f"{row.experiment} {row.precision}": row.reason for row in rows if row.reason}


def main() -> int:
    """The command; returns its exit status."""
    options = parser("reports.build", __doc__)
    one = options.add_mutually_exclusive_group()
    one.add_argument("--out", type=Path, metavar="DIR", help="where to write (the repository)")
    one.add_argument("--format", choices=FORMATS, help="print the table over all experiments, and write nothing")
    given = options.parse_args()
    try:
        if given.format:
            comparisons, left_out = comparisons_in(RESULTS)
            print(overview({folder.name: one for folder, one in comparisons.items()}, given.format))
            left_out |= _incomplete(comparisons)
        else:
            left_out = build((given.out or ROOT).resolve())
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name, reason in left_out.items():
        print(f"left out: {name}: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run(main)
