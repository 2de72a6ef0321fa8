"""Training: per-model scripts, the comparison over any of them, and what they share."""

import sys

from train.cli import signals

# The first lines of ours that any `python -m train.COMMAND` runs, before the seconds that its libraries take to
# load. While Python looks for the command its own name is "-m"; whoever imports this package keeps their handlers.
if sys.argv[0] == "-m":
    signals.leave_at_once()
    from train.cli import plan

    plan.announce(sys.orig_argv[sys.orig_argv.index("-m") + 1], sys.argv[1:])
