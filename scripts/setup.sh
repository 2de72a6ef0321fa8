#!/usr/bin/env bash
# Makes the virtual environment that the other scripts use, and brings it up to date when requirements.txt
# changed. VENV names another folder than .venv (several clones can share one); PYTHON names an interpreter
# that has the packages already, and then nothing is installed. Other scripts source this file and use $python.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

if [ -n "${PYTHON:-}" ]; then
  python="$PYTHON"
else
  venv="${VENV:-$root/.venv}"
  python="$venv/bin/python"
  mkdir -p "$venv"
  exec 9>"$venv/.setup.lock" && flock 9 # two scripts started at once: the second waits
  if ! cmp -s "$root/requirements.txt" "$venv/.requirements.txt"; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
      { echo "error: python3 is $(python3 --version), and at least 3.11 is needed" >&2; exit 2; }
    echo "setting up $venv: installing requirements.txt (some minutes, about 6 GB; only when it changed)" >&2
    python3 -m venv "$venv" >&2
    "$python" -m pip install --disable-pip-version-check --progress-bar off -r "$root/requirements.txt" >&2
    cp "$root/requirements.txt" "$venv/.requirements.txt"
  fi
  exec 9>&-
fi

# The packages of this repository are found from any folder, and one of the same name in that folder is not.
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONSAFEPATH=1
