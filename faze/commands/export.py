"""`faze export`: a trained checkpoint -> a copy for inference in low precision, or an ONNX graph of a part.

    faze export --precision bf16 --checkpoint results/default/amp/seed0/checkpoint.pt --out amp_bf16.pt \
        --data results/default/data/mpiigaze.h5
    faze export --onnx gaze --checkpoint results/default/amp/seed0/checkpoint.pt --out gaze.onnx
    faze export --onnx gaze --precision fp16 --checkpoint results/default/amp/seed0/checkpoint.pt --out gaze_fp16.onnx
    faze export --onnx decoder --checkpoint results/default/amp/seed0/checkpoint.pt --out decoder.onnx
    faze export --precision bf16 --workload ssd --checkpoint results/ssd/baseline/seed0/checkpoint.pt --out ssd_bf16.pt

The copy is half as large. It contains what encode and walk need, but not the state for resuming training. It is read
like any other checkpoint: weights are converted back to float32, and codes are computed in float32. The printed angles
show the effect of rounding the weights, with and without computing in that precision (autocast). For workloads other
than DT-ED, the score and the duration of the validation are printed instead.

Graphs are documented in `faze.model.onnx_graphs`. `gaze` maps strips to gaze and codes; with --precision, onnxruntime's
tools convert it. Its error and its time for a strip are printed. With --person, a file of `faze calibrate`, the gaze in
the graph is calibrated for that person; if the learner is bayes or kappa, the graph also needs the head pose. `decoder`
maps an appearance code, a gaze code and a head code to an image. The output of a graph in float32 is compared with the
network's before the file is written.
"""

import contextlib
import functools
import tempfile
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
from faze.config.shipped import network_path
from faze.config.workloads import DTED as FAZE
from faze.data.network_input import shrink, to_network_torch
from faze.data.store.strips import StripStore
from faze.fewshot.onnx_person import NEED_HEAD, calibration_in_torch
from faze.fewshot.person_codes import Seen
from faze.fewshot.personal_estimator import PersonalEstimator, load_personal_estimator
from faze.model.dted import DTED
from faze.model.losses import angle_deg
from faze.model.onnx_graphs import (
    LARGEST_DIFFERENCE,
    Decoder,
    Gaze,
    export_part,
    largest_difference,
    lower_precision,
    open_graph,
    random_strips,
)
from faze.model.torch_file import read_mapping, write_mapping
from faze.model.weights import load_model, network_hash, rounded, save_weights
from faze.stages.encode import encode_strips
from faze.training.workload_training import load_workload

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
NORMALISING = ["ReduceL2", "Clip", "Div"]
TIMED = 100  # strips, one by one


@command(
    __doc__,
    argument("--precision", choices=[*DTYPES, "int8"], help="number format of the copy or graph"),
    argument("--onnx", choices=["gaze", "decoder"], help="write this part as an ONNX graph instead"),
    argument(
        "--keep-fp32",
        nargs="+",
        default=NORMALISING,
        metavar="OPERATOR",
        help=f"operators of the graph that stay in float32 (default: {' '.join(NORMALISING)}, which normalise codes)",
    ),
    argument(
        "--person",
        type=Path,
        help="file of `faze calibrate` whose calibration the graph gaze shall contain (same network; no --precision)",
    ),
    argument("--workload", default=FAZE, help="network of the checkpoint, as in the configuration (default: DT-ED)"),
    needed("--checkpoint", "trained network; shipped: that of the package"),
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
    """Write the copy or the graph, and compare it with the network."""
    if not (args.onnx or args.precision):
        raise UserError("pass --precision, for a copy, or --onnx, for the graph of a part")
    if args.precision == ("bf16" if args.onnx else "int8") or args.onnx == "decoder" and args.precision:
        raise UserError("the graph gaze can be fp16 or int8, the graph decoder only float32, and a copy fp16 or bf16")
    if args.person and (args.onnx != "gaze" or args.precision):
        raise UserError("--person is for the graph gaze in float32: pass --onnx gaze, and do not pass --precision")
    if args.precision == "int8" and not args.data:
        raise UserError("int8 needs --data: half of the strips determine the range of activations, half the error")
    if args.workload != FAZE:
        if args.onnx or args.data:
            raise UserError("--onnx and --data are for DT-ED: pass only --precision for another workload")
        convert(args.workload, args.checkpoint, DTYPES[args.precision], args.out)
        return
    args.checkpoint = network_path(args.checkpoint)
    trained = load_model(args.checkpoint)
    if args.onnx == "decoder":
        write_graph(Decoder(trained), args.out)
        return
    size = trained.model.image_height_px, trained.model.image_width_px
    pixels = stored_strips(args.data, args.strips) if args.data else random_strips(args.strips, *size).numpy()
    if args.onnx:
        write_gaze(trained, args, pixels)
        return
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
    copy = rounded(out, model.state_dict(), dtype)
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


def write_graph(part: Gaze | Decoder, out: Path) -> None:
    """Export a part and compare it with the network; write nothing if they differ."""
    with output_lock(out), whole_file(out) as temporary:
        export_part(part, temporary)
        found = largest_difference(part, temporary)
        if not found <= LARGEST_DIFFERENCE:
            raise UserError(
                f"the exported graph differs from the network by {found:.2g}, more than {LARGEST_DIFFERENCE:g}: "
                f"{out} was not written"
            )
    print(f"{out}: {out.stat().st_size / 2**20:.2f} MiB; onnxruntime's values differ by at most {found:.1g}")


def write_gaze(dted: DTED, args: Namespace, pixels: NDArray[np.uint8]) -> None:
    """Write the graph `gaze`, and print its error and time for strips (N, H, W, 3)."""
    size = dted.model.image_height_px, dted.model.image_width_px
    strips = shrink(torch.from_numpy(pixels), *size).numpy()
    person, part = None, Gaze(dted, to_network_torch)
    if args.person:
        person = load_personal_estimator(args.person, network_hash(dted), 3 * dted.model.z_gaze)
        part = Gaze(dted, to_network_torch, calibration_in_torch(person), person.learner in NEED_HEAD)
    if args.precision is None:
        write_graph(part, args.out)
        print_angles(part, person, args.out, strips, args.data)
        return
    fitted, measured = (strips[::2], strips[1::2]) if args.precision == "int8" else (strips, strips)
    with tempfile.TemporaryDirectory() as folder, output_lock(args.out), whole_file(args.out) as temporary:
        plain = Path(folder, "gaze.onnx")
        export_part(part, plain)
        lower_precision(plain, temporary, args.precision, args.keep_fp32, fitted)
        print_angles(part, person, temporary, measured, args.data)


def print_angles(
    part: Gaze, person: PersonalEstimator | None, path: Path, strips: NDArray[np.uint8], data: Path | None
) -> None:
    """Print the error and the time of a graph `gaze` for strips (N, H, W, 3) of the network's size.

    Raises:
        UserError: a gaze is not finite.
    """
    graph = open_graph(path)

    def network(strips: NDArray[np.uint8], head: NDArray[np.float32] | None = None) -> NDArray:
        codes = encode_strips(part.dted, strips)
        seen = Seen(codes["z_gaze"].reshape(len(strips), -1), codes["gaze_hat"].astype(np.float64), head)
        return seen.gaze_hat if person is None else person.gaze(seen)

    inputs = {name: value.numpy() for name, value in part.examples(len(strips)).items()} | {"strips": strips}
    computed = {"network": network, "graph": lambda **inputs: graph.run(["gaze"], inputs)[0]}
    gaze = {name: torch.from_numpy(run(**inputs)) for name, run in computed.items()}
    angles = angle_deg(*(each.double() for each in gaze.values()))
    if not angles.isfinite().all():
        raise UserError("the graph's gaze is not finite in this precision: keep more operators in fp32 (--keep-fp32)")
    kind = ("strips" if data else "random patterns") + " with random head poses" * part.needs_head
    print(f"{'calibrated ' if person else ''}gaze compared with the network's on {len(strips)} {kind}:")
    print(f"  mean {float(angles.mean()):.4f} degrees, largest {float(angles.max()):.4f} degrees")
    for name, run in computed.items():
        began = time.perf_counter()
        for number in range(TIMED):
            run(**{name: value[number % len(strips)][None] for name, value in inputs.items()})
        print(f"  {name}: {1e3 * (time.perf_counter() - began) / TIMED:.2f} ms for a strip")


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
