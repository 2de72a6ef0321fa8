"""Published rows that experiments aim at: `python -m reports.reproduce` lists them, each with its verdict so far.

With the id of a row it prints the path of the configuration behind it, for `scripts/reproduce.sh`.
"""

import sys

from reports.analysis import published
from reports.analysis.reproduction import hours, reproductions
from reports.command import parser, run
from reports.pages.published_table import about


def main() -> int:
    """List the published rows, or print the path of the configuration behind one; returns the exit status."""
    options = parser("reports.reproduce", __doc__)
    options.add_argument("id", nargs="?", help="of a published row: print the configuration that aims at it")
    given = options.parse_args()
    try:
        print("\n".join(listing()) if given.id is None else configuration_of(given.id))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def configuration_of(identity: str) -> str:
    """The path of the first configuration that aims at a row; raises ValueError, with the nearest id, for none."""
    rows, aims = published.aimed_at()
    for name, config in aims.items():
        if identity in config.published:
            return f"configs/{name}.yaml"
    aimed = sorted({row for config in aims.values() for row in config.published})
    fault = f"no experiment aims at {identity!r}," if identity in rows else published.unknown_row(identity, aimed)
    raise ValueError(f"{fault} allowed: {', '.join(aimed)}")


def listing() -> list[str]:
    """A line a published row and experiment that aims at it, in each precision that was run."""
    lines = []
    (_, aims), costs = published.aimed_at(), hours()
    for result in reproductions():
        row, name = result.row, result.experiment
        verdict = f"{result.precision} {result.mean:.4g}: {result.verdict}" if result.measured else result.verdict
        cost = f"{about(costs[name])} a run" if name in costs else "cost not known"
        figure, data = f"{row.metric} {row.value} {row.unit}", aims[name].data.name
        lines.append(f"{row.id}  {name}  {row.model}  {figure}  {verdict}  data {data}, {cost} in FP32 on a CPU")
    return lines


if __name__ == "__main__":
    run(main)
