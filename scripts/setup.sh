#!/usr/bin/env bash
# Makes the virtual environment that the other scripts use, and brings it up to date when requirements.txt
# changed. VENV names another folder than .venv (several clones can share one); PYTHON names an interpreter
# that has the packages already, and then nothing is installed. Other scripts source this file and use $python.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

# --help, of any script: what its first lines say. Nothing is installed for it and nothing starts.
for argument in "$@"; do
  case "$argument" in
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
  esac
done

interrupted() {
  echo "interrupted: while packages are installed; the same command continues" >&2
  exit 75
}

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
    trap interrupted INT TERM HUP
    pip=("$python" -m pip install --quiet --disable-pip-version-check --progress-bar off)
    { python3 -m venv "$venv" >"$venv/.setup.log" 2>&1 &&
      "${pip[@]}" -r "$root/requirements.txt" >>"$venv/.setup.log" 2>&1; } ||
      { cat "$venv/.setup.log" >&2; echo "error: the packages could not be installed, see above" >&2; exit 1; }
    trap - INT TERM HUP
    cp "$root/requirements.txt" "$venv/.requirements.txt"
    echo "set up $venv" >&2
  fi
  exec 9>&-
fi

# The packages of this repository are found from any folder, and one of the same name in that folder is not.
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONSAFEPATH=1
