#!/usr/bin/env bash
# The experiment behind a published number: bash scripts/reproduce.sh ID [options of train.compare]
#   bash scripts/reproduce.sh --list      every published number that an experiment aims at, and its verdict so far
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
case "${1:-}" in
  "" | -h | --help) sed -n '2,3s/^# *//p' "${BASH_SOURCE[0]}"; exit 2 ;;
  --list) exec "$python" -m reports.reproduction ;;
esac
config="$("$python" -m reports.reproduction "$1")" # ends here, with the reason, when nothing aims at it
shift
exec "$python" -m train.compare "$config" "$@"
