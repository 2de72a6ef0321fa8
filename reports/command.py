"""How the commands of this folder start and end."""

import argparse
import signal
import sys
from collections.abc import Callable
from typing import NoReturn


def parser(module: str, about: str | None) -> argparse.ArgumentParser:
    """The options of `python -m module`; its help begins with the text `about`."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def run(main: Callable[[], int]) -> NoReturn:
    """Exit with the status of `main`; silently, as other Unix tools do, where `| head` has read enough."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and raises BrokenPipeError at the next print
    sys.exit(main())
