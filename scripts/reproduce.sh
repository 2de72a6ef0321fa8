#!/usr/bin/env bash
# The experiment behind a published number: bash scripts/reproduce.sh ID [options of train.compare]
#   bash scripts/reproduce.sh --list      every published number that an experiment aims at, and its verdict so far
set -euo pipefail
case "${1:-}" in
  "") sed -n '2,3s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  --list) [ $# -eq 1 ] || { echo "error: --list takes nothing behind it, not '$2'" >&2; exit 2; } ;;
esac
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
[ "$1" != --list ] || exec "$python" -m reports.reproduce
config="$("$python" -m reports.reproduce "$1")" # ends here, with the reason, when nothing aims at it
shift
exec "$python" -m train.compare "$config" "$@"
