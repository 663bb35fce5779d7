"""`faze export`: a trained checkpoint -> a copy for inference in low precision, or its decoder in ONNX.

    faze export --precision bf16 --checkpoint results/default/amp/seed0/checkpoint.pt --out amp_bf16.pt \
        --data results/default/data/mpiigaze.h5
    faze export --onnx --checkpoint results/default/amp/seed0/checkpoint.pt --out decoder.onnx
    faze export --precision bf16 --workload ssd --checkpoint results/ssd/baseline/seed0/checkpoint.pt --out ssd_bf16.pt

The copy is half as large. It contains what encode and walk need, but not the state for resuming training. It is read
like any other checkpoint: weights are converted back to float32, and codes are computed in float32. The printed angles
show the effect of rounding the weights, with and without computing in that precision (autocast). For workloads other
than DT-ED, the score and the duration of the validation are printed instead.

The decoder computes an image from an appearance code, a gaze code and a head code; `faze.model.onnx_decoder` documents
their layout. Its output in onnxruntime is compared with the network's before the file is written.
"""

import contextlib
import functools
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from faze.base.command_line import argument, at_least_one, command, needed
from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.locks import output_lock
from faze.config.workloads import DTED as FAZE
from faze.data.store.strips import StripStore
from faze.model.dted import DTED
from faze.model.losses import angle_deg
from faze.model.onnx_decoder import LARGEST_DIFFERENCE, export_decoder, largest_difference
from faze.model.torch_file import read_mapping, write_mapping
from faze.model.weights import load_model, save_weights
from faze.stages.encode import encode_strips
from faze.training.workload_training import load_workload

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


@command(
    __doc__,
    argument("--precision", choices=DTYPES, help="number format of the copy's parameters"),
    argument("--onnx", action="store_true", help="write the decoder as an ONNX graph instead"),
    argument("--workload", default=FAZE, help="network of the checkpoint, as in the configuration (default: DT-ED)"),
    needed("--checkpoint", "trained network"),
    argument("--data", type=Path, help="store of normalised strips for the comparison (default: random patterns)"),
    argument(
        "--strips",
        type=at_least_one,
        default=64,
        help="number of strips to compare, spread evenly over all people (default: 64)",
    ),
    needed("--out", "checkpoint or graph to write"),
)
def main(args: Namespace) -> None:
    """Write the copy or the decoder, and compare it with the network."""
    if args.onnx == (args.precision is not None):
        raise UserError("pass either --precision, for a copy, or --onnx, for only the decoder")
    if args.workload != FAZE:
        if args.onnx or args.data:
            raise UserError("--onnx and --data are for DT-ED: pass only --precision for another workload")
        convert(args.workload, args.checkpoint, DTYPES[args.precision], args.out)
        return
    trained = load_model(args.checkpoint)
    if args.onnx:
        write_decoder(trained, args.out)
        return
    pixels = stored_strips(args.data, args.strips) if args.data else random_strips(args.strips)
    dtype = DTYPES[args.precision]
    with output_lock(args.out):
        save_weights(args.out, trained, dtype)
    copy = load_model(args.out)
    before, after = (path.stat().st_size / 2**20 for path in (args.checkpoint, args.out))
    print(f"{args.out}: {args.precision}, {after:.1f} MiB instead of {before:.1f} MiB")
    print(f"gaze compared with the original on {len(pixels)} {'strips' if args.data else 'random patterns'}:")
    print(f"  computed in float32: {moved(trained, copy, pixels)}")
    copy.autocast = functools.partial(torch.autocast, copy.fc_enc.weight.device.type, dtype)
    print(f"  computed in {args.precision}:    {moved(trained, copy, pixels)}")


def convert(name: str, checkpoint: Path, dtype: torch.dtype, out: Path) -> None:
    """Write a copy of a workload's network, and print its score and the time of the validation in both formats."""
    workload = load_workload(name)
    model = workload.build().eval()
    try:
        model.load_state_dict(read_mapping(checkpoint)["model"])
    except (KeyError, RuntimeError):
        raise UserError(f"{checkpoint}: does not contain the weights of workload {name}: pass its checkpoint") from None
    copy = {key: value.to(dtype) if value.is_floating_point() else value for key, value in model.state_dict().items()}
    with output_lock(out):
        write_mapping(out, {"model": copy})
    print(f"{out}: {out.stat().st_size / 2**20:.2f} MiB; {workload.score}:")
    with torch.inference_mode():
        workload.validate(model)  # the first one is slower
    for words, state, context in (
        ("original, computed in float32", model.state_dict(), contextlib.nullcontext()),
        (f"copy, computed in {str(dtype).removeprefix('torch.')}", copy, torch.autocast("cpu", dtype)),
    ):
        model.load_state_dict(state)
        began = time.perf_counter()
        with torch.inference_mode(), context:
            score = workload.validate(model)
        print(f"  {words}: {score:.2f} ({time.perf_counter() - began:.2f} s)")


def write_decoder(dted: DTED, out: Path) -> None:
    """Export the decoder and compare it with the network; write nothing if they differ."""
    with output_lock(out), whole_file(out) as temporary:
        export_decoder(dted, temporary)
        found = largest_difference(dted, temporary)
        if not found <= LARGEST_DIFFERENCE:
            raise UserError(
                f"the exported decoder differs from the network by {found:.2g}, more than {LARGEST_DIFFERENCE:g}: "
                f"{out} was not written"
            )
    print(f"{out}: {out.stat().st_size / 2**20:.1f} MiB; onnxruntime's images differ by at most {found:.1g} (range: 2)")


def moved(trained: DTED, copy: DTED, pixels: NDArray[np.uint8]) -> str:
    """Describe the mean and largest angle between two models' gaze estimates for strips (N, H, W, 3)."""
    gaze = [torch.from_numpy(encode_strips(dted, pixels)["gaze_hat"]) for dted in (trained, copy)]
    angles = angle_deg(*gaze)
    return f"mean {float(angles.mean()):.4f} degrees, largest {float(angles.max()):.4f} degrees"


def stored_strips(path: Path, wanted: int) -> NDArray[np.uint8]:
    """Return `wanted` strips (N, H, W, 3), evenly spaced over all people in a store; all strips if there are fewer."""
    with StripStore(path) as strips:
        entries = [(person, i) for person in strips.persons() for i in range(strips.count(person))]
        if not entries:
            raise UserError(f"{path}: contains no strips for the comparison")
        chosen = np.linspace(0, len(entries) - 1, min(wanted, len(entries))).round().astype(int)
        return np.stack([strips.pixels(*entries[i]) for i in chosen])


def random_strips(count: int) -> NDArray[np.uint8]:
    """Return N reproducible, smooth random patterns (N, 64, 256, 3)."""
    coarse = torch.rand(count, 3, 8, 32, generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.interpolate(coarse, size=(64, 256), mode="bilinear")
    return (255 * smooth).byte().permute(0, 2, 3, 1).contiguous().numpy()
