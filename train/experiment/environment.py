"""What a run ran on: versions, hardware, instruction sets, the state of the source tree."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import torch

from reports.records.environment import Device, Machine, Processor, Source
from train.engine.errors import Refused

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    *("torch", "torchvision", "timm", "transformers", "tokenizers", "safetensors", "huggingface_hub", "datasets"),
    *("pyarrow", "pillow", "numpy", "scikit-learn", "pydantic", "wandb"),
)
# The instruction sets on which a CPU's 16-bit speed depends, as /proc/cpuinfo spells them.
CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16")


def resolve_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one; raises `Refused` for CUDA where there is none."""
    if name == "cuda" and not torch.cuda.is_available():
        raise Refused("device 'cuda': this machine has no usable CUDA device; allowed here: auto, cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def describe(device: torch.device) -> Machine:
    """The machine, the versions and the source."""
    return Machine(
        versions={"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        platform=platform.platform(),
        device=_device(device),
        cpu=Processor(
            cores=os.cpu_count(),
            threads=torch.get_num_threads(),
            memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
            instruction_sets=instruction_sets(),
        ),
        git=git_state(),
    )


def device_name(device: torch.device) -> str:
    """The name by which people know the device; it stands above every table."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    names = [line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def instruction_sets() -> list[str]:
    flags = next((line.partition(":")[2].split() for line in _cpuinfo() if line.startswith("flags")), [])
    return [flag for flag in CPU_FLAGS if flag in flags]


def git_state() -> Source:
    """Commit and whether tracked files differ from it; None where the source is no checkout."""
    commit, status = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    return Source(commit=commit, dirty=None if status is None else bool(status))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def _device(device: torch.device) -> Device:
    if device.type != "cuda":
        return Device(type=device.type, name=device_name(device))
    import pynvml

    properties = torch.cuda.get_device_properties(device)
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")
        return Device(
            type=device.type,
            name=device_name(device),
            memory_gib=round(properties.total_memory / 2**30, 1),
            compute_capability=f"{properties.major}.{properties.minor}",
            driver=pynvml.nvmlSystemGetDriverVersion(),
            cuda=torch.version.cuda,
            power_limit_watts=pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        )
    finally:
        pynvml.nvmlShutdown()
