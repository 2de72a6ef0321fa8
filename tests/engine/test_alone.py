"""The engine in somebody else's project: the folder alone, with torch and a script of about 30 lines."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import train.engine

SCRIPT = """
import sys
import torch
from amp import Plan, Precision, Trainer, evaluate, fit


class Epochs:
    def __init__(self, count):
        draw = torch.Generator().manual_seed(0)
        images = torch.randn(count, 16, 8, generator=draw)
        self.listed = [{"images": x, "labels": (x.sum(1) > 0).long()} for x in images]
        self.batches, self.samples = count, count * 16

    def epoch(self, epoch, start=0):
        return iter(self.listed[start:])


def forward(model, batch):
    return model(batch["images"]), batch["labels"]


torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
precision = Precision(sys.argv[1], torch.device("cpu"))
loss, count = torch.nn.functional.cross_entropy, lambda batch: len(batch["labels"])
trainer = Trainer(model, forward, loss, count, [optimizer], lambda step: 1 - step / 60, precision, clip_norm=1.0)
fit(trainer, Epochs(10), Plan(steps=60, log_every=20), on_log=lambda metrics: print(metrics["train/loss"]))
totals = evaluate(model, forward, lambda x, y: {"correct": (x.argmax(1) == y).sum()}, Epochs(10), precision)
print(int(totals["correct"]) / 160)
assert not [name for name in sys.modules if name.split(".")[0] == "train"]
"""


def test_the_copied_folder_trains_without_this_repository(tmp_path: Path) -> None:
    shutil.copytree(Path(train.engine.__file__).parent, tmp_path / "amp")
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for precision in ("fp32", "bf16", "fp16"):
        command = [sys.executable, "script.py", precision]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        *losses, accuracy = map(float, done.stdout.split())
        assert len(losses) == 3
        assert losses[0] > losses[-1]
        assert accuracy > 0.9


def test_the_public_names_are_all_there() -> None:
    assert all(hasattr(train.engine, name) for name in train.engine.__all__)
    assert {"Precision", "Trainer", "fit", "evaluate"} <= set(train.engine.__all__)
