"""How the commands of reports end."""

import importlib
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import reports

COMMANDS = [path for path in Path(reports.__path__[0]).glob("*.py") if "__main__" in path.read_text(encoding="utf-8")]


def test_a_command_whose_reader_has_read_enough_ends_silently() -> None:
    code = "from reports.command import run\nrun(lambda: [print(number) for number in range(100_000)] and 0)"
    command = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert command.stdout
    assert command.stderr
    assert command.stdout.readline() == "0\n"
    command.stdout.close()
    assert command.stderr.read() == ""
    assert command.wait() == -signal.SIGPIPE
    command.stderr.close()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda path: path.stem)
def test_every_command_starts_the_same_way(command: Path) -> None:
    assert command.read_text(encoding="utf-8").endswith('if __name__ == "__main__":\n    run(main)\n')


@pytest.mark.parametrize("command", COMMANDS, ids=lambda path: path.stem)
def test_the_help_says_how_a_command_is_started_and_what_it_takes(
    command: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = f"reports.{command.stem}"
    monkeypatch.setattr(sys, "argv", [str(command), "--help"])
    with pytest.raises(SystemExit):
        importlib.import_module(module).main()
    said = capsys.readouterr().out
    assert said.startswith(f"usage: python -m {module} ")
    assert re.search(r"^  RUNS\s+\w", said, re.MULTILINE) or module != "reports.overview"
