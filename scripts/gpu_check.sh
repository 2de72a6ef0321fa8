#!/usr/bin/env bash
# On a machine with a CUDA GPU: the tests marked cuda, then ResNet-18 in fp32, tf32, bf16 and fp16, side by side.
# Records go to $OUT (default runs/gpu_check). --tiny runs the same commands on a CPU in a minute or two.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
out="${OUT:-runs/gpu_check}"
options=(--device cuda --precisions fp32,tf32,bf16,fp16 --seeds 1 batch_size=128 epochs=12)
if [ "${1:-}" = --tiny ]; then
  options=(--device cpu --precisions fp32,bf16,fp16 --seeds 1 --smoke)
fi
(cd "$root" && "$python" -m pytest -q -m cuda)
"$python" -m train.compare "$root/configs/resnet20_digits.yaml" "${options[@]}" --out "$out" \
  name=resnet18_digits arch=resnet18 data.name=digits
"$python" -m scripts.bench_engine "${@:1:1}" --output "$out/engine_benchmark.json"
