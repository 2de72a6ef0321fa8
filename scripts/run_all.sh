#!/usr/bin/env bash
# Every quick comparison (embedded data, no download), one after another, then one table over all of them:
#   bash scripts/run_all.sh [--seeds N] [--smoke] [--out DIR] [other options of train.compare]
# What is finished is not run again. The exit status is 0 when every comparison succeeded.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
out=runs
smoke=
previous=
for argument in "$@"; do
  [ "$previous" != --out ] || out="$argument"
  case "$argument" in --out=*) out="${argument#--out=}" ;; --smoke) smoke=/smoke ;; esac
  previous="$argument"
done
status=0
names=()
for config in "$root"/configs/*_{digits,pydoc,number_words}.yaml; do
  [ -e "$config" ] || continue
  name="$(basename "$config" .yaml)"
  names+=("$out$smoke/$name")
  "$python" -m train.compare "configs/$name.yaml" "$@" && continue
  code=$?
  # Interrupted: the same command goes on from there. Refused: so would the others be.
  if [ "$code" -eq 75 ] || [ "$code" -eq 2 ]; then exit "$code"; fi
  status=1
done
"$python" -m reports.overview "${names[@]}"
exit "$status"
