"""Make everything that is shown from the committed records: python -m reports.build

Reads the run records under reports/results/<experiment>/ and reports/results/engine_benchmark.json. Writes
comparison.json, results.md, results.csv and report.html beside the records, reports/index.html and
reports/README.md over all of them, and the tables in README.md between their markers. Running it twice changes
nothing; a test runs it and compares.
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

from reports import index, page, published_table, table
from reports.comparison import recorded
from reports.overview import FORMATS, overview
from reports.records import read_json, write_json
from reports.reproduction import QUICK, RESULTS, ROOT, reproductions


def comparison_of(folder: Path) -> dict[str, Any]:
    """`reports.comparison.recorded`, of a folder that must have one."""
    comparison = recorded(folder)
    if comparison is None:
        raise SystemExit(f"error: {folder / 'comparison.json'} is missing or not readable")
    return comparison


def engine_table(record: dict[str, Any]) -> str:
    """The engine's own benchmark as Markdown."""
    lines = [f"{record['experiment']}, on {record['environment']['device']['name']}:", ""]
    lines += ["| ratio, measured in turns in one process | median | 95% interval |", "| :-- | --: | --: |"]
    for name, (value, low, high) in record["ratios"].items():
        lines.append(f"| {name} | {value:.3f} | {low:.3f} to {high:.3f} |")
    lines.append(f"| loader time / bf16 step time | {record['loader_share_of_bf16_step']:.4f} | |")
    if native := record.get("native_fp16"):
        name = f"throughput, PyTorch's own fp16 kernels / fp32, batch {native['batch_size']}"
        lines.append(f"| {name} | {native['throughput_over_fp32']:.4f} | single steps |")
    return "\n".join(lines)


def between_markers(text: str, name: str, content: str) -> str:
    """`text` with `content` between `<!-- name:begin -->` and `<!-- name:end -->`; ValueError without the markers."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"markers {begin} and {end} are missing")
    return f"{before}{begin}\n{content.strip()}\n{end}{after}"


def build(out: Path) -> None:
    """Write README.md, reports/index.html, reports/README.md and reports/results/ under `out`, from the records."""
    results = out / "reports" / "results"
    if results != RESULTS:
        shutil.copytree(RESULTS, results, dirs_exist_ok=True)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    comparisons = {path.parent: comparison_of(path.parent) for path in sorted(results.glob("*/comparison.json"))}
    for folder, comparison in comparisons.items():
        write_json(folder / "comparison.json", comparison)
        page.write(folder, comparison)
        if folder.name == QUICK:
            readme = between_markers(readme, "results", table.markdown(comparison))
    benchmark = read_json(results / "engine_benchmark.json")
    if benchmark is not None:
        readme = between_markers(readme, "engine", engine_table(benchmark))
    found = reproductions(results)
    readme = between_markers(readme, "published", published_table.summary(found))
    (out / "README.md").write_text(readme, encoding="utf-8")
    index.write(out / "reports", comparisons, found, read_json(results / "calibration.json"))


def main() -> None:
    """The command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=ROOT, metavar="DIR", help="where to write (the repository)")
    options.add_argument("--format", choices=FORMATS, help="print the table over all experiments, and write nothing")
    given = options.parse_args()
    if given.format is None:
        build(given.out.resolve())
        return
    folders = [path.parent for path in sorted(RESULTS.glob("*/comparison.json"))]
    print(overview([(folder.name, comparison_of(folder)) for folder in folders], given.format))


if __name__ == "__main__":
    main()
