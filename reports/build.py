"""Make everything that is shown from the committed records: python -m reports.build

Reads the run records under reports/results/<experiment>/ and reports/results/engine_benchmark.json. Writes
comparison.json, results.md, results.csv and report.html beside the records, reports/index.html and
reports/README.md over all of them, and the tables in README.md between their markers. Running it twice changes
nothing; a test runs it and compares.
"""

import argparse
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.analysis.comparison import comparisons_in
from reports.analysis.reproduction import QUICK, RESULTS, ROOT, reproductions
from reports.overview import FORMATS, overview
from reports.pages import experiment_page as page
from reports.pages import overview_page as index
from reports.pages import published_table, table
from reports.records.calibration import why_unfit
from reports.records.engine_benchmark import NO_RECORD, engine_table
from reports.records.files import read_json, write_json


def between_markers(text: str, name: str, content: str) -> str:
    """`text` with `content` between `<!-- name:begin -->` and `<!-- name:end -->`; ValueError without the markers."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"markers {begin} and {end} are missing")
    return f"{before}{begin}\n{content.strip()}\n{end}{after}"


def build(out: Path) -> dict[str, str]:
    """Write README.md, reports/index.html, reports/README.md and reports/results/ under `out`, from the records.

    Returns, by name, why experiments, and runs and figures of them, were left out. Raises ValueError naming what is
    wrong in published.csv or in a configuration; nothing is written then.
    """
    results = out / "reports" / "results"
    if results != RESULTS:
        shutil.copytree(RESULTS, results, dirs_exist_ok=True)
    comparisons, left_out = comparisons_in(results)
    found = reproductions(results, comparisons)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    quick = comparisons.get(results / QUICK)
    quick_table = table.markdown(quick) if quick else f"No record: {left_out.get(QUICK, 'it was not run')}."
    engine = engine_table(results / "engine_benchmark.json")
    for name, content in {
        "results": quick_table,
        "engine": engine,
        "published": published_table.summary(found),
    }.items():
        readme = between_markers(readme, name, content)
    for folder, comparison in comparisons.items():
        write_json(folder / "comparison.json", comparison)
        page.write(folder, comparison)
    (out / "README.md").write_text(readme, encoding="utf-8")
    calibration = read_json(results / "calibration.json")
    index.write(out / "reports", comparisons, left_out, found, calibration)
    unfit = {"calibration.json": reason} if (reason := why_unfit(calibration)) else {}
    unmeasured = {"engine_benchmark.json": engine} if engine.startswith(NO_RECORD) else {}
    return left_out | _incomplete(comparisons) | unfit | unmeasured


def _incomplete(comparisons: Mapping[Path, Mapping[str, Any]]) -> dict[str, str]:
    """By experiment and precision, which of its runs and figures are in no table."""
    rows = [(folder.name, row) for folder, comparison in comparisons.items() for row in comparison["rows"]]
    return {f"{name} {row['precision']}": row["reason"] for name, row in rows if row["reason"]}


def main() -> int:
    """The command; returns its exit status."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, metavar="DIR", help="where to write (the repository)")
    options.add_argument("--format", choices=FORMATS, help="print the table over all experiments, and write nothing")
    given = options.parse_args()
    if given.format and given.out:
        options.error("--format prints and writes nothing: it takes no --out")
    if given.out and given.out.exists() and not given.out.is_dir():
        options.error(f"--out: {given.out} is not a folder")
    try:
        if given.format:
            comparisons, left_out = comparisons_in(RESULTS)
            print(overview([(folder.name, found) for folder, found in comparisons.items()], given.format))
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
    sys.exit(main())
