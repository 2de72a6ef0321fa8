#!/usr/bin/env bash
# GPT-2 on Python's own documentation in fp32, bf16 and fp16, three seeds each, unless told otherwise:
#   bash scripts/run_gpt2_amp.sh [CONFIG] [--precisions fp32,bf16] [--seeds N] [--smoke] [key.sub=value ...]
exec bash "$(dirname "${BASH_SOURCE[0]}")/compare.sh" configs/gpt2_pydoc.yaml "$@"
