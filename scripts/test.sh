#!/usr/bin/env bash
# The tests: bash scripts/test.sh [pytest options]. Those that need a GPU, Chromium or DATA_ROOT skip without it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
[ -z "${DATA_ROOT:-}" ] || DATA_ROOT="$(cd "$DATA_ROOT" && pwd)"
cd "$root"
# A worker on each core, each computing on one thread: most tests are too small for more.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "$python" -m pytest -n auto --dist loadfile "$@"
