#!/usr/bin/env bash
# ResNet-20 on the embedded digits in fp32, bf16 and fp16, as many seeds as its noise needs for a verdict:
#   bash scripts/run_resnet_amp.sh [CONFIG] [--precisions fp32,bf16] [--seeds N] [--smoke] [key.sub=value ...]
exec bash "$(dirname "${BASH_SOURCE[0]}")/compare.sh" "configs/resnet20_digits.yaml --seeds 9" "$@"
