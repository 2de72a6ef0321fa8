"""Copies from the host to the device."""

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor` on `device`; from the host to a GPU through pinned memory, without waiting."""
    if tensor.device == device or tensor.device.type == device.type == "cuda":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
