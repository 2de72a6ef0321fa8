#!/usr/bin/env bash
# RoBERTa on the embedded digits, read as tokens, in fp32, bf16 and fp16, three seeds each, unless told otherwise:
#   bash scripts/run_roberta_amp.sh [CONFIG] [--precisions fp32,bf16] [--seeds N] [--smoke] [key.sub=value ...]
exec bash "$(dirname "${BASH_SOURCE[0]}")/compare.sh" configs/roberta_digits.yaml "$@"
