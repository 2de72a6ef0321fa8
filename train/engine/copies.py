"""Copies of a model that share nothing with it."""

import copy

from torch import Tensor, nn

from .errors import Refused


def copied(model: nn.Module) -> nn.Module:
    """A deep copy. Tensors that a module computes and keeps, as the old `weight_norm` does, become plain values.

    Raises `Refused` for a model that holds something that cannot be copied, such as a lock or an open file.
    """
    attributes = [value for module in model.modules() for value in vars(module).values()]
    computed = [value for value in attributes if isinstance(value, Tensor) and not value.is_leaf]
    try:
        return copy.deepcopy(model, {id(tensor): tensor.detach().clone() for tensor in computed})
    except (TypeError, RuntimeError, AttributeError) as error:
        raise Refused(f"the model cannot be copied, which its trial pass and its average need: {error}") from error
