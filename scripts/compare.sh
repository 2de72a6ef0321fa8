#!/usr/bin/env bash
# FP32 against mixed precision, of one experiment:
#   bash scripts/run_<model>_amp.sh [CONFIG] [options] [key.sub=value ...]    the model's quick experiment, or CONFIG
#   bash scripts/compare.sh CONFIG [options] [key.sub=value ...]
# CONFIG is a YAML file or the name of one in configs/. Options: --plan, --precisions fp32,bf16,fp16, --seeds N,
# --until-decided, --require VERDICT, --device cpu|cuda, --out DIR, --smoke; all of them: python -m train.compare --help
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# A relative file: Python looks in the current folder, then in the repository. Behind it the options it needs.
read -ra default <<<"$1" && shift
previous=
for argument in "$@"; do
  case "$argument" in
    --seeds | --seeds=* | --smoke) default=("${default[@]:0:1}") ;;
    -* | *=*) ;;
    *.yaml | *.yml) default=() ;;
    *) [ "$previous" = --out ] || [ ! -e "$root/configs/$argument.yaml" ] || default=() ;;
  esac
  previous="$argument"
done
exec "$python" -m train.compare "${default[@]}" "$@"
