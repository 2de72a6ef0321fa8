"""A comparison as a table of texts: for the terminal, for Markdown, and as CSV for machines."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from reports.analysis.comparison import COLUMNS
from reports.analysis.statistics import SIGNIFICANCE
from reports.pages import formats as ratio
from reports.records.environment import UNCOMMITTED, device_kind, device_name
from reports.records.run import BASELINE

MISSING = "n/a"


def header(comparison: Mapping[str, Any]) -> list[str]:
    """Column titles; the metric is named as it is in the records."""
    metric = (comparison["metric"] or "metric").removeprefix("eval/")
    compared = ["difference to FP32 [95%]", "verdict", "samples/s", "speed-up [95%]"]
    return ["precision", metric, *compared, "peak memory", "saved for backward", "skipped steps"]


def cells(row: Mapping[str, Any]) -> list[str]:
    """One row's texts. A figure that was not measured is n/a, never a number."""
    percent = row["metric"] == "eval/accuracy"
    baseline = row["precision"] == BASELINE
    # The speed of stand-in arithmetic must not pass for that of hardware that has this precision.
    mark = " (emulated)" if emulated(row) else ""
    note = "" if row["status"] == "finished" else f"{row['status']}: {row['reason']}"
    measure = _measure(row["mean"], row["sd"], row["seeds"], percent) if row["seeds"] else ""
    return [
        row["precision"],
        f"{measure} ({note})" if measure and note else measure or note,
        "baseline" if baseline else difference(row),
        "baseline" if baseline else verdict(row),
        _number(row["samples_per_sec"], ",.0f"),
        "baseline" if baseline else " ".join(ratio.shown(row)) + mark if row["speedup"] is not None else MISSING,
        _memory(row["peak_memory_mib"], ",.0f", None if baseline else row["peak_ratio"], ".2f"),
        _memory(row["saved_for_backward_mib"], ",.1f", None if baseline else row["saved_ratio"], ".3f"),
        _number(row["skipped_steps"], "d"),
    ]


def notes(comparison: Mapping[str, Any]) -> list[str]:
    """What a reader must know to read the figures right."""
    found = []
    if comparison["smoke"]:
        found.append("A smoke run: a few steps on embedded data. These figures say only that the code runs.")
    if len(comparison["seeds"]) == 1:
        found.append("One seed: a single run each, so a difference in accuracy cannot be told from noise.")
    if not comparison["committed"]:
        found.append(f"Some of its source {UNCOMMITTED}: `reports.build` leaves such figures out.")
    if len(comparison["torch"]) > 1:
        found.append(f"Its runs are of more than one version of PyTorch: {', '.join(comparison['torch'])}.")
    if len(comparison["commits"]) > 1:
        commits = ", ".join(commit[:8] for commit in comparison["commits"])
        found.append(f"Its runs are of more than one commit: {commits}.")
    measured_at = ((comparison["benchmark"] or {}).get("git") or {}).get("commit")
    if measured_at and comparison["commits"] and measured_at not in comparison["commits"]:
        found.append(f"Its speed was measured at another commit than that of its runs: {measured_at[:8]}.")
    judged = [row for row in comparison["rows"] if row["verdict"]]
    if judged:
        percent = judged[0]["metric"] == "eval/accuracy"
        what = f"{100 * comparison['margin']:g} points" if percent else f"{comparison['margin']:.1%} of FP32's"
        share = SIGNIFICANCE / comparison["looks"]
        found.append(
            f"Verdict: EQUIVALENT when two one-sided t-tests at {in_percent(share)} rule out a difference of {what} "
            f"either way, so that the {in_percent(1 - 2 * share)} interval lies within; otherwise WORSE or BETTER when "
            f"the {in_percent(1 - share)} interval excludes zero."
        )
        if comparison["looks"] > 1:
            found.append(
                f"Seeds were added while a verdict was open, in at most {comparison['looks']} looks: each tests at "
                f"5% / {comparison['looks']}, and the intervals are as much wider."
            )
        elif any(row["verdict"] == "INCONCLUSIVE" for row in judged):
            found.append(
                "To add seeds because a verdict is open makes a verdict by chance likelier: `--until-decided` makes up "
                "for that by stricter tests, a greater `--seeds` does not."
            )
    for row in comparison["rows"]:
        if row["verdict"] == "INCONCLUSIVE":
            found.append(f"{row['precision']} is inconclusive: {more_seeds(row)}.")
        if row["drift"]:
            early, late = row["drift"]
            found.append(
                f"{row['precision']}: the speed-up drifted while it was measured, from {early:.2f}x in the first "
                f"third to {late:.2f}x in the last: the machine was not quiet."
            )
        if row["speedup"] is not None and row["speedup_high"] < 1:
            found.append(f"{row['precision']} is slower than FP32 here: {ratio.shown(row)[0]}{_reason(row)}.")
        if emulated(row):
            found.append(
                f"{row['precision']} on this CPU: {row['arithmetic']}. Its accuracy and what it saves for backward are "
                "those of fp16; its speed and its peak are those of the stand-in, not of hardware with fp16 units."
            )
    return found


def markdown(comparison: Mapping[str, Any]) -> str:
    """The table and its notes, with the hardware above and the command below."""
    lines = [f"**{comparison['experiment']}** on {device(comparison)}", ""]
    titles = header(comparison)
    lines += [line(titles), line([":--", *["--:"] * (len(titles) - 1)])]
    lines += [line(cells(row)) for row in comparison["rows"]]
    lines += ["", *(f"- {note}" for note in notes(comparison)), "", f"`{comparison['command']}`", ""]
    return "\n".join(lines)


def as_csv(*comparisons: Mapping[str, Any]) -> str:
    """The rows of all `comparisons` with full digits, columns `COLUMNS`; empty where there is no figure."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(row for comparison in comparisons for row in comparison["rows"])
    return buffer.getvalue()


def device(comparison: Mapping[str, Any]) -> str:
    """The hardware and what it has for 16-bit arithmetic."""
    name = name_of_device(comparison, "unknown hardware")
    if kind_of_device(comparison) != "cpu":
        return name
    recorded = comparison["environment"].get("cpu", {}).get("instruction_sets")
    flags = [flag for flag in recorded or [] if flag.endswith(("bf16", "fp16"))]
    shown = "not recorded" if recorded is None else ", ".join(flags) or "none"
    return f"{name} (CPU; 16-bit instruction sets: {shown})"


def kind_of_device(comparison: Mapping[str, Any]) -> str | None:
    """`cpu` or `cuda`; None where no run recorded it."""
    return device_kind(comparison["environment"] or {})


def name_of_device(comparison: Mapping[str, Any], missing: str = MISSING) -> str:
    """The hardware alone."""
    return device_name(comparison["environment"] or {}) or missing


def difference(row: Mapping[str, Any]) -> str:
    """The mean paired difference to FP32 and, of two pairs at least, its interval."""
    percent = row["metric"] == "eval/accuracy"
    if row["difference"] is None or row["difference_low"] is None:
        return _signed(row["difference"], percent)
    scale, form = (100, ".2f") if percent else (1, ".4f")
    interval = f"[{scale * row['difference_low']:{form}}, {scale * row['difference_high']:{form}}]"
    wider = f" at {in_percent(1 - SIGNIFICANCE / row['looks'])}" if row["looks"] > 1 else ""
    pairs = f" (n={row['pairs']})" if row["pairs"] != row["seeds"] else ""
    return f"{_signed(row['difference'], percent)} {interval}{wider}{pairs}"


def verdict(row: Mapping[str, Any]) -> str:
    """The verdict; without one whether that is for having one run, or one pair or none."""
    if row["verdict"] or not row["seeds"]:
        return row["verdict"] or MISSING
    return "single run" if row["seeds"] == 1 else "single pair" if row["pairs"] else "no pair"


def more_seeds(row: Mapping[str, Any]) -> str:
    """How many seeds would decide."""
    if row["seeds_needed"] is None:
        return "more seeds than can be trained would be needed for a verdict at this margin"
    return f"about {row['seeds_needed']} seeds would decide with 80% power, were these the true difference and spread"


def _reason(row: Mapping[str, Any]) -> str:
    """Which operator's time grew most in a slower precision, from the profile of a step."""
    if not row["slower_in"]:
        return ""
    name, before, after = row["slower_in"]
    compared = f"{before:.3g} ms in FP32" if before is not None else "too little in FP32 to be among its longest"
    return f"; the operator that grew most is {name.removeprefix('aten::')}: {after:.3g} ms of a step, {compared}"


def emulated(row: Mapping[str, Any]) -> bool:
    """Whether the precision's arithmetic is made from that of another one, so that its speed is not its own."""
    return row["arithmetic"] not in (None, "native kernels")


def line(texts: Sequence[str]) -> str:
    # A reason may hold line breaks and bars, which would end the row or the cell.
    return "| " + " | ".join(" ".join(text.split()).replace("|", "\\|") for text in texts) + " |"


def _measure(mean: float, sd: float | None, seeds: int, percent: bool) -> str:
    shown = f"{100 * mean:.2f}%" if percent else f"{mean:.4f}"
    if sd is None:
        return f"{shown} (single run)" if seeds == 1 else shown
    return f"{shown} ± {100 * sd:.2f} (n={seeds})" if percent else f"{shown} ± {sd:.4f} (n={seeds})"


def _signed(value: float | None, percent: bool) -> str:
    if value is None:
        return MISSING
    return f"{100 * value:+.2f} points" if percent else f"{value:+.4f}"


def _memory(value: float | None, form: str, ratio: float | None, ratio_form: str) -> str:
    """With its ratio to FP32, where there is one."""
    return _number(value, form, " MiB") + (f" ({ratio:{ratio_form}}x)" if ratio is not None else "")


def in_percent(share: float) -> str:
    """A share in per cent, with three digits."""
    return f"{100 * share:.3g}%"


def _number(value: float | None, form: str, unit: str = "") -> str:
    return MISSING if value is None else f"{value:{form}}{unit}"
