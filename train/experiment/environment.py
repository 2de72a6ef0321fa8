"""What a run ran on: versions, hardware, instruction sets, the state of the source tree."""

import os
import platform
import re
import subprocess
from collections.abc import Sequence
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
# How torch.__config__ writes the libraries that its results depend on.
BUILDS = {"blas": r"(Math Kernel Library Version [\d.]+|BLAS_INFO=\w+)", "onednn": r"MKL-DNN v([\d.]+)"}
# The instruction sets on which a CPU's 16-bit speed depends, as /proc/cpuinfo spells them.
CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16")


def resolve_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one; raises `Refused` for CUDA where there is none."""
    if name == "cuda" and not torch.cuda.is_available():
        raise Refused("device 'cuda': this machine has no usable CUDA device; allowed here: auto, cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def describe(device: torch.device, source_files: Sequence[Path] = ()) -> Machine:
    """The machine, the versions and the source, to which `source_files` belong."""
    return Machine(
        versions={"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        platform=platform.platform(),
        device=_device(device),
        cpu=Processor(
            name=_cpu_field("model name") or platform.processor() or platform.machine(),
            vendor=_cpu_field("vendor_id") or _cpu_field("CPU implementer"),
            family=_cpu_field("cpu family") or _cpu_field("CPU architecture"),
            model=_cpu_field("model") or _cpu_field("CPU part"),
            stepping=_cpu_field("stepping") or _cpu_field("CPU revision"),
            cores=os.cpu_count(),
            threads=torch.get_num_threads(),
            memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
            instruction_sets=instruction_sets(),
        ),
        builds=library_builds(),
        git=git_state(source_files),
    )


def device_name(device: torch.device) -> str:
    """The name by which people know the device; it stands above every table."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = _cpu_field("model name") or platform.processor() or platform.machine()
    return f"{name}, {torch.get_num_threads()} threads"


def instruction_sets() -> list[str]:
    flags = (_cpu_field("flags") or "").split()
    return [flag for flag in CPU_FLAGS if flag in flags]


def library_builds() -> dict[str, str]:
    """The libraries inside PyTorch that multiply matrices on a CPU, and the instruction sets that it uses of one."""
    text = torch.__config__.show()
    found = {name: re.search(pattern, text) for name, pattern in BUILDS.items()}
    builds = {name: match[1] for name, match in found.items() if match}
    return {**builds, "cpu_capability": torch.backends.cpu.get_cpu_capability()}


def git_state(source_files: Sequence[Path] = ()) -> Source:
    """Commit, and whether tracked files differ from it or any of `source_files` is not tracked.

    None where the source is no checkout.
    """
    commit, status = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    if status is None:
        return Source(commit=commit)
    inside = [file for file in source_files if file.is_relative_to(ROOT)]
    untracked = len(inside) < len(source_files) or (inside and _git("ls-files", "--others", "--", *map(str, inside)))
    return Source(commit=commit, dirty=bool(status or untracked))


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


def _cpu_field(name: str) -> str | None:
    """The field of the first CPU in /proc/cpuinfo."""
    for line in _cpuinfo():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip() or None
    return None


def _device(device: torch.device) -> Device:
    if device.type != "cuda":
        return Device(type=device.type, name=device_name(device))
    properties = torch.cuda.get_device_properties(device)
    driver, watts = _driver_and_power_limit(f"GPU-{properties.uuid}")
    return Device(
        type=device.type,
        name=device_name(device),
        memory_gib=round(properties.total_memory / 2**30, 1),
        compute_capability=f"{properties.major}.{properties.minor}",
        driver=driver,
        cuda=torch.version.cuda,
        power_limit_watts=watts,
    )


def _driver_and_power_limit(uuid: str) -> tuple[str | None, float | None]:
    """What NVML says of a GPU; None for what it does not: without its library, or of a GPU without a power limit."""
    import pynvml

    driver: str | None = None
    try:
        pynvml.nvmlInit()
        driver = pynvml.nvmlSystemGetDriverVersion()
        return driver, pynvml.nvmlDeviceGetEnforcedPowerLimit(pynvml.nvmlDeviceGetHandleByUUID(uuid)) / 1000
    except pynvml.NVMLError:
        return driver, None
