#!/usr/bin/env bash
# Every quick comparison (embedded data, no data download), one after another, then one table over all of them:
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
refused=0
names=()
for config in "$root"/configs/*_{digits,pydoc,number_words}.yaml; do
  [ -e "$config" ] || continue
  name="$(basename "$config" .yaml)"
  names+=("$out$smoke/$name")
  "$python" -m train.compare "configs/$name.yaml" "$@" && continue
  code=$?
  [ "$code" -ne 75 ] || exit 75 # interrupted: the same command resumes from there
  [ "$code" -eq 2 ] && refused=$((refused + 1))
  status=1
done
[ "$refused" -lt "${#names[@]}" ] || exit 2 # a wrong option, not a wrong experiment
"$python" -m reports.overview "${names[@]}"
exit "$status"
