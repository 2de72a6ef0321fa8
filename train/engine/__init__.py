"""Training in FP32 and mixed precision with torch alone; the folder can be copied into another project."""

from .errors import Diverged, EngineFault, Interrupted, Refused
from .fit import Plan, evaluate, fit
from .precision import Precision
from .step import Trainer

__all__ = ["Diverged", "EngineFault", "Interrupted", "Plan", "Precision", "Refused", "Trainer", "evaluate", "fit"]
