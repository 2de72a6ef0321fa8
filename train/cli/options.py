"""The command line that every per-model script and the comparison share."""

import argparse
import contextlib
import difflib
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from train.cli import terminal
from train.cli.signals import INTERRUPTED, REASON_FILE, spoken_for
from train.engine.errors import Diverged, EngineFault, Interrupted, Refused

STATUS = {"finished": 0, "failed": 1, "refused": 2, "diverged": 3, "verdict": 4, "interrupted": INTERRUPTED}


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """Says the default of the options that have one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """argparse whose options may stand before or after the overrides, and whose errors name the nearest option."""

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Options into a namespace, `key=value` arguments into its `overrides`; exits with 2 on a wrong option."""
        parsed, rest = self.parse_known_intermixed_args(arguments)
        if rest:
            options = [option for action in self._actions for option in action.option_strings]
            nearest = difflib.get_close_matches(rest[0].partition("=")[0], options, n=1, cutoff=0.5)
            hint = f" did you mean {nearest[0]}?" if nearest else ""
            self.error(f"unknown option {rest[0]}:{hint} allowed: {', '.join(o for o in options if o[:2] == '--')}")
        if "=" in str(getattr(parsed, "config", "")):
            # The file may stand behind the first changes.
            values = [str(parsed.config), *parsed.overrides]
            files = [value for value in values if "=" not in value]
            if files:
                parsed.config = Path(files[0])
                values.remove(files[0])
                parsed.overrides = values
        return parsed

    def error(self, message: str) -> NoReturn:
        if match := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            nearest = difflib.get_close_matches(match[1], re.findall(r"[\w-]+", match[2]), n=1, cutoff=0.5)
            message += f": did you mean {nearest[0]}?" if nearest else ""
        terminal.complain(f"error: {message}")
        self.exit(STATUS["refused"])


def parser(module: str, description: str) -> Parser:
    """The options that a run and a comparison have in common."""
    options = Parser(
        prog=f"python -m {module}",
        description=description,
        allow_abbrev=False,
        formatter_class=Help,
    )
    options.add_argument("config", type=Path, metavar="CONFIG", help="the experiment's YAML file")
    options.add_argument("overrides", nargs="*", metavar="KEY.SUB=VALUE", help="changes to the configuration")
    options.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to train")
    options.add_argument("--out", type=Path, default=Path("runs"), help="folder for the results of all experiments")
    options.add_argument(
        "--smoke",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="a few steps on embedded data, under OUT/smoke, never in a results table",
    )
    return options


def seed(text: str) -> int:
    """A seed from 0 to 2**31 - 1."""
    value = int(text)
    if not 0 <= value < 2**31:
        raise argparse.ArgumentTypeError(f"{text} is not in 0 .. 2147483647")
    return value


def finish(action: Callable[[], int], smoke: bool = False) -> int:
    """Run `action` and turn the ways in which it can end into an exit status, with one line on why.

    A `smoke` run keeps nothing to resume from.
    """
    try:
        with contextlib.redirect_stdout(terminal.Output(sys.stdout)):
            return action()
    except Refused as error:
        return _say("error", error, "refused")
    except Diverged as error:
        return _say("diverged", error, "diverged")
    except Interrupted as error:
        remedy = "a smoke run starts again" if smoke else "the same command resumes from there"
        return _say("interrupted", error if spoken_for() else f"{error}; {remedy}", "interrupted")
    except (EngineFault, OSError) as error:
        return _say("error", error, "failed")
    except SystemExit as error:  # with 0 it would pass for a command that did its work
        return _say("error", f"the model or its data called sys.exit({error.code!r})", "failed")


def _say(word: str, error: object, status: str) -> int:
    if status != "interrupted" or not spoken_for():
        terminal.complain(f"{word}: {error}")
    if file := os.environ.get(REASON_FILE):
        Path(file).write_text(str(error), encoding="utf-8", errors="backslashreplace")  # of a name that is no text
    return STATUS[status]
