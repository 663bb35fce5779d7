#!/bin/sh
# Correctness, tiers and leave-one-outs at the paper's size on one bare CUDA machine, a budget at a time.
#
#   benchmarks/gpu.sh [--budget-s 500] [--out results/gpu] [--tiny]
#
# It needs python3 with the training core's packages (torch, numpy, h5py, opencv-python-headless, pyyaml); faze itself
# need not be installed. With nvidia-ml-py it counts the energy too. Run the same command again until it reports that all
# is done: results in OUT/gpu.json are not measured again. OUT/gpu.md is the table. --tiny does the same at toy sizes,
# for a machine without a GPU.
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}"
exec python3 "$here/gpu" "$@"
