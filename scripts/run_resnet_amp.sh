#!/usr/bin/env bash
# ResNet-20 on the embedded digits in fp32, bf16 and fp16, nine seeds each, unless told otherwise:
#   bash scripts/run_resnet_amp.sh [CONFIG] [--precisions fp32,bf16] [--seeds N] [--smoke] [key.sub=value ...]
seeds=(--seeds 9) # of this experiment alone: as many as its noise needs for a verdict
for argument in "$@"; do
  case "$argument" in --smoke | --seeds | --seeds=* | *.yaml | *.yml) seeds=() ;; esac
done
exec bash "$(dirname "${BASH_SOURCE[0]}")/compare.sh" configs/resnet20_digits.yaml "${seeds[@]}" "$@"
