"""Which W&B run a run or a comparison is, and what a comparison shows there.

One place for the commands that train and compare, whose mirror is live, and for `train.sync`, which comes later.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.analysis.comparison import succeeded
from reports.pages import table
from train.experiment.config import Experiment
from train.tracking.wandb_run import Mirror


def mirror_of_run(folder: Path, run_id: str, config: Experiment, precision: str, seed: int, **options: Any) -> Mirror:
    """The W&B run of one run; `options` are those of `Mirror`."""
    return Mirror(
        folder,
        run_id,
        group=_group(config),
        job_type=precision,
        name=f"{config.name}-{precision}-s{seed}",
        tags=[config.model, config.arch, config.data.name, precision],
        config={**config.model_dump(), "precision": precision, "seed": seed},
        **options,
    )


def mirror_comparison(folder: Path, config: Experiment, comparison: Mapping[str, Any], **options: Any) -> Mirror:
    """Send a comparison as one more W&B run, and return its mirror, closed; `options` are those of `Mirror`.

    The run's history has the table, `folder`/report.html and each of its charts, anew whenever they have changed; its
    summary has the rows of the comparison by precision, with all that a row holds.
    """
    mirror = Mirror(
        folder,
        run_id=f"{config.digest()[:8]}-{'-'.join(comparison['precisions'])}-{len(comparison['seeds'])}",
        group=_group(config),
        job_type="comparison",
        name=f"{config.name}-comparison",
        tags=[config.model, config.arch, config.data.name],
        config=config.model_dump(),
        **options,
    )
    summary: dict[str, Any] = {row["precision"]: row for row in comparison["rows"]}
    shown: list[str] = []

    def send(run: Any) -> None:
        contents = _contents(folder, comparison)
        digest = hashlib.sha256(repr(contents).encode()).hexdigest()
        if run.summary.get("contents_sha256") != digest:
            run.log(_media(*contents))
        summary["contents_sha256"] = digest
        shown.extend(["comparison", *contents[2]])

    mirror.open()
    mirror.call("report", send)
    mirror.close(summary, 0 if succeeded(comparison) else 1, shown)
    return mirror


def _group(config: Experiment) -> str:
    return f"{config.name}-{config.digest()[:8]}"


def _contents(folder: Path, comparison: Mapping[str, Any]) -> tuple[list[str], list[list[str]], dict[str, str]]:
    """The table's titles and rows, and HTML pages by name."""
    report = (folder / "report.html").read_text(encoding="utf-8")
    charts = {f"charts/{name}": page for name, page in charts_of(report).items()}
    return table.header(comparison), [table.cells(row) for row in comparison["rows"]], {"report": report, **charts}


def _media(titles: list[str], rows: list[list[str]], pages: Mapping[str, str]) -> dict[str, Any]:
    import wandb

    shown = {name: wandb.Html(page, inject=False) for name, page in pages.items()}
    return {"comparison": wandb.Table(columns=[*titles], data=rows), **shown}


def charts_of(report: str) -> dict[str, str]:
    """The figures of a report.html by name, each as a page of its own that looks as it does there."""
    style = re.search(r"<style>.*?</style>", report, re.DOTALL)
    head = f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">{style[0] if style else ""}</head>'
    named = re.finditer(r'<figure>(?:(?!</figure>).)*<figcaption id="([^"]+)-caption".*?</figure>', report, re.DOTALL)
    return {found[1]: f"{head}<body>{found[0]}</body></html>" for found in named}
