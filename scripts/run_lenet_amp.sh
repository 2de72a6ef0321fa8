#!/usr/bin/env bash
# LeNet-5 on the embedded digits in fp32, bf16 and fp16, three seeds each, unless told otherwise:
#   bash scripts/run_lenet_amp.sh [CONFIG] [--precisions fp32,bf16] [--seeds N] [--smoke] [key.sub=value ...]
exec bash "$(dirname "${BASH_SOURCE[0]}")/compare.sh" configs/lenet5_digits.yaml "$@"
