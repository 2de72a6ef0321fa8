"""A new architecture: its training script, its quick experiment and its run script, which run as they are.

python -m train.new NAME [--like resnet|bert]
"""

import keyword
import sys
from collections.abc import Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

import yaml

from train.cli import options as command
from train.engine.errors import Refused
from train.experiment.config import model_scripts

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "train" / "templates"
LONGEST = 60
NO_NAMES = {"utils", "helpers", "common", "misc"}  # say nothing of what is in a file
LIKE = {"resnet": "resnet20_digits", "bert": "bert_digits"}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    options = command.Parser(prog="python -m train.new", description="Start a new architecture.", allow_abbrev=False)
    options.add_argument("name", metavar="NAME", help="of the script: a Python identifier in lower case")
    options.add_argument("--like", choices=sorted(LIKE), default="resnet", help="images, or token sequences")
    given = options.parse(arguments)
    return command.finish(lambda: create(given.name, given.like, ROOT))


def create(name: str, like: str, root: Path) -> int:
    """Write the three files under `root`. Raises `Refused` when the name will not do or a file exists."""
    plain = name.isascii() and name.isidentifier() and name == name.lower() and not name.startswith("_")
    # YAML reads on, no and null as something else than a name.
    if not plain or len(name) > LONGEST or keyword.iskeyword(name) or yaml.safe_load(name) != name:
        raise Refused(f"{name!r} is not a Python identifier in lower case, such as mynet")
    taken = name in model_scripts() or (root / "train" / name).exists() or name in NO_NAMES
    if taken or name in sys.stdlib_module_names or name in packages_distributions():
        raise Refused(f"{name!r} is taken by a script or a library; choose another name")
    files = {
        root / "train" / f"{name}.py": _filled(TEMPLATES / f"{like}.py.txt", name),
        root / "configs" / f"{name}_digits.yaml": _experiment(LIKE[like], name),
        root / "scripts" / f"run_{name}_amp.sh": _filled(TEMPLATES / "run.sh.txt", name),
    }
    for path in files:
        if path.exists():
            raise Refused(f"{path} exists; nothing was written")
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(root)}")
    files_to_run = f"python -m train.check configs/{name}_digits.yaml && bash scripts/run_{name}_amp.sh --smoke"
    print(f"next: {files_to_run}")
    return 0


def _filled(template: Path, name: str) -> str:
    return template.read_text(encoding="utf-8").replace("NAME", name)


def _experiment(source: str, name: str) -> str:
    """The quick experiment that `source` is, with the new model's name and architecture."""
    values = yaml.safe_load((ROOT / "configs" / f"{source}.yaml").read_text(encoding="utf-8"))
    lines = (ROOT / "configs" / f"{source}.yaml").read_text(encoding="utf-8").splitlines()
    body = [line for line in lines if not line.startswith("#")]
    text = "\n".join(body) + "\n"
    for key in ("model", "arch"):
        text = text.replace(f"{key}: {values[key]}\n", f"{key}: {name}\n", 1)
    return f"# {name} on the embedded digits: a quick experiment to start from.\n{text}"


if __name__ == "__main__":
    sys.exit(main())
