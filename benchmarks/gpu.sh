#!/bin/sh
# Correctness, speed and memory of the tiers at the paper's size on one bare CUDA machine, a budget at a time.
#
#   benchmarks/gpu.sh [--budget-s 500] [--workload ssd] [--out results/gpu] [--only UNIT ...] [--plan] [--tiny]
#
# It needs python3 with torch, numpy, scipy, h5py, opencv-python-headless, pyyaml and filelock; faze itself need not be
# installed. Results in OUT/gpu.json are not measured again. docs/how-to/gpu.md explains it.
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}"
exec python3 "$here/gpu" "$@"
