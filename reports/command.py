"""How the commands of this folder start and end."""

import signal
import sys
from collections.abc import Callable
from typing import NoReturn


def run(main: Callable[[], int]) -> NoReturn:
    """Exit with the status of `main`; silently, as other Unix tools do, where `| head` has read enough."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and raises BrokenPipeError at the next print
    sys.exit(main())
