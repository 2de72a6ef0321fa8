#!/usr/bin/env bash
# scripts/compare.sh DEFAULT_CONFIG [CONFIG] [options]: the comparison, of DEFAULT_CONFIG unless a YAML file is given.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
default="$1" && shift # relative: Python looks in the current folder, then in the repository
for argument in "$@"; do
  case "$argument" in -* | *=*) ;; *.yaml | *.yml) default="" ;; esac
done
exec "$python" -m train.compare ${default:+"$default"} "$@"
