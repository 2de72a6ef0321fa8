#!/usr/bin/env bash
# T5 on numbers to English words in fp32, bf16 and fp16, three seeds each, unless told otherwise:
#   bash scripts/run_t5_amp.sh [CONFIG] [--precisions fp32,bf16] [--seeds N] [--smoke] [key.sub=value ...]
exec bash "$(dirname "${BASH_SOURCE[0]}")/compare.sh" configs/t5_number_words.yaml "$@"
