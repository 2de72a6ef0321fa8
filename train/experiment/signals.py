"""How a run is asked to stop."""

import signal
import sys
from types import FrameType


class Signals:
    """SIGTERM and SIGINT ask the run to stop after the step it is in; a second one ends the process at once."""

    def __init__(self) -> None:
        self.requested = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.requested = True
        print(f"{signal.Signals(number).name}: saving a checkpoint", file=sys.stderr, flush=True)
