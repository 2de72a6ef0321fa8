"""Pretrained weights of image models: those that torchvision publishes, or a file. Only a new head may be missing."""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn


def load_pretrained(model: nn.Module, arch: str, pretrained: bool | str) -> None:
    """Put published weights (`pretrained` true) or those of a file into `model`.

    A file is a state dict (.pth, .pt, .safetensors) or the checkpoint of a run, such as checkpoints/best.pt.

    The last linear layer is the head, Inception's auxiliary classifier another, whose first convolution depends on the
    size of the image: where shapes differ or it is missing, it stays new. Prints how many tensors were loaded, missing
    and unexpected, and keeps the counts as `model.pretrained`.
    Raises ValueError for anything else that is missing or of another shape, and for weights that cannot be read.
    """
    source = published_file(arch) if pretrained is True else Path(str(pretrained))
    network = getattr(model, "network", model)  # Inception's, which stands inside `models.inception.TwoHeads`
    weights = {_today(name).removeprefix("network."): tensor for name, tensor in _read(source).items()}
    own = network.state_dict()
    last = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)][-1]
    head = (f"{last}.", "AuxLogits.")
    fitting = {name: tensor for name, tensor in weights.items() if name in own and tensor.shape == own[name].shape}
    missing = sorted(own.keys() - fitting.keys())
    if foreign := [name for name in missing if not name.startswith(head)]:
        there = f"has the shape {tuple(weights[foreign[0]].shape)}" if foreign[0] in weights else "is not there"
        raise ValueError(
            f"pretrained: {source} does not fit {arch}: {len(foreign)} of {len(own)} tensors, such as {foreign[0]!r}, "
            f"which {there}; only a new head ({last}) may be missing"
        )
    network.load_state_dict(fitting, strict=False)
    if pretrained is True and hasattr(network, "transform_input"):
        # The weights are Google's, for pixels from -1 to 1, which torchvision's network makes of ImageNet's.
        network.transform_input = True
    counts = {"loaded": len(fitting), "missing": len(missing), "unexpected": len(weights.keys() - own.keys())}
    print(f"pretrained {source}: " + ", ".join(f"{value} {key}" for key, value in counts.items()), flush=True)
    model.pretrained = {"source": str(source), **counts, "missing_names": missing}  # type: ignore[assignment]


def _today(name: str) -> str:
    """Torchvision's DenseNet files name a layer's parts norm.1 and so on, its modules norm1 (its densenet.py)."""
    return re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)", r"\1\2", name)


def published_file(arch: str) -> Path:
    """The file with torchvision's best weights of `arch` in torch's cache, fetched when it is not there.

    Raises ValueError, naming the address and the folder, when there are none or they cannot be fetched.
    """
    import torch
    import torchvision

    if arch not in torchvision.models.list_models():
        raise ValueError(f"pretrained: torchvision publishes no weights of {arch}; give a file")
    address = str(torchvision.models.get_model_weights(arch).DEFAULT.url)
    file = Path(torch.hub.get_dir()) / "checkpoints" / address.rpartition("/")[2]
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        digest = file.stem.rpartition("-")[2]  # torchvision's names end in the first digits of the SHA-256
        try:
            torch.hub.download_url_to_file(address, str(file), hash_prefix=digest, progress=False)
        except (OSError, RuntimeError) as error:
            raise ValueError(
                f"pretrained: {address} could not be fetched ({error}). Put the file into {file.parent}, "
                f"or give its path"
            ) from None
    return file


def fault(error: Exception) -> str:
    """Why weights cannot be read, in one line: without torch's advice to read what may run code of the file."""
    text = " ".join(str(error).split())
    if "weights_only" in text or "Weights only" in text:
        return "it holds Python objects other than tensors and plain values, which are never read: they can run code"
    return text[:300]


def _evaluated(trainer: Mapping[str, Any]) -> Any:
    """The weights in the checkpoint of a run that its evaluations are of: the moving average where there is one."""
    average = trainer.get("ema")
    if not average:
        return trainer.get("model")
    return {name.removeprefix("module."): tensor for name, tensor in average.items() if name != "n_averaged"}


def _read(file: Path) -> Mapping[str, Tensor]:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        weights = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, SafetensorError, pickle.UnpicklingError) as error:
        raise ValueError(f"pretrained: {file} is not readable: {fault(error)}") from None
    if isinstance(weights, Mapping) and isinstance(trainer := weights.get("trainer"), Mapping):
        weights = _evaluated(trainer)
    if not isinstance(weights, Mapping) or not all(isinstance(tensor, Tensor) for tensor in weights.values()):
        raise ValueError(f"pretrained: {file} holds no state dict: names and tensors, as model.state_dict() gives them")
    return weights
