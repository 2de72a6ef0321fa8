"""The shell scripts, as people call them, with an interpreter that has the packages already."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def bash(*command: str, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable, "WANDB_MODE": "disabled", **extra}
    return subprocess.run(["bash", *command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def test_the_quick_start_runs_from_any_folder_with_its_options(tmp_path):
    (tmp_path / "train").mkdir()  # a folder of the same name must not be taken for the repository's
    script = str(ROOT / "scripts" / "run_resnet_amp.sh")
    done = bash(script, "--smoke", "--precisions", "fp32,bf16", "--seeds", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "smoke" / "resnet20_digits" / "report.html").exists()
    assert "A smoke run" in done.stdout
    assert "| fp16 |" not in done.stdout


def test_a_configuration_can_be_named_before_or_after_options(tmp_path):
    script = str(ROOT / "scripts" / "run_resnet_amp.sh")
    for arguments in (["configs/nothing.yaml", "--seeds", "1"], ["--seeds", "1", "configs/nothing.yaml"]):
        done = bash(script, *arguments, cwd=ROOT, PYTHONPATH=str(tmp_path))
        assert done.returncode == 2
        assert "unknown configuration file 'configs/nothing.yaml'" in done.stderr


def test_the_environment_is_made_only_when_requirements_changed(tmp_path):
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    stamp = venv / ".requirements.txt"
    stamp.write_bytes((ROOT / "requirements.txt").read_bytes())
    command = 'source scripts/setup.sh && echo "python: $python"'
    done = bash("-c", command, cwd=ROOT, PYTHON="", VENV=str(venv))
    assert done.returncode == 0, done.stderr
    assert f"python: {venv}/bin/python" in done.stdout
    assert "installing" not in done.stderr
    stamp.write_text("something else\n")
    # A pip that does nothing stands in for the installation.
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text("import sys; print('pip', *sys.argv[1:])\n")
    (tmp_path / "venv.py").write_text("print('venv made')\n")
    done = bash("-c", command, cwd=ROOT, PYTHON="", VENV=str(venv), PYTHONPATH=str(tmp_path))
    assert "installing requirements.txt" in done.stderr
    assert f"-r {ROOT}/requirements.txt" in done.stderr
    assert stamp.read_bytes() == (ROOT / "requirements.txt").read_bytes()


def test_every_script_passes_its_arguments_on_and_stops_at_the_first_fault():
    for script in sorted((ROOT / "scripts").glob("*.sh")):
        text = script.read_text()
        assert text.startswith("#!/usr/bin/env bash\n"), script
        assert "set -euo pipefail" in text or "exec bash" in text, script
        if script.name.startswith(("run_", "test")):
            assert '"$@"' in text, script


def test_the_list_of_published_numbers_takes_nothing_behind_it_and_a_mistyped_id_gets_the_nearest():
    script = str(ROOT / "scripts" / "reproduce.sh")
    done = bash(script, "--list", "foo", cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --list takes nothing behind it, not 'foo'\n"
    done = bash(script, "nanogpt-shk-cp", cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown published row 'nanogpt-shk-cp': did you mean 'nanogpt-shk-cpu'?" in done.stderr
