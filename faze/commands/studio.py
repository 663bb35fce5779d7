"""`faze studio`: a local page for changing a strip's gaze, head pose and appearance, decoded in the browser.

    faze studio
    faze studio --checkpoint results/default/baseline/seed0/checkpoint.pt results/default/recompute/seed0/checkpoint.pt

Several checkpoints are shown side by side. The default is the network from `make weights`, or else the baseline of the
default ablation. The page needs no internet connection. With --out, it is written as a folder for any web server. `make
studio` downloads onnxruntime-web once.
"""

import signal
import tempfile
from argparse import Namespace
from pathlib import Path

import numpy as np

from faze.base.command_line import argument, at_least_one, command, port_number
from faze.base.errors import UserError
from faze.base.files import check_replaceable
from faze.data.store.strips import StripStore
from faze.model.weights import load_model
from faze.studio.server import DATA, PAGE, open_server, write_studio

OWN = (Path("results/default/weights/dted.pt"), Path("results/default/baseline/seed0/checkpoint.pt"))
STRIPS = Path("results/default/data/gazecapture.h5")
PORT = 8080


@command(
    __doc__,
    argument("--checkpoint", type=Path, nargs="+", help=f"trained DT-ED (default: {OWN[0]}, else {OWN[1]})"),
    argument("--data", type=Path, default=STRIPS, help=f"store of normalised strips (default: {STRIPS})"),
    argument(
        "--people",
        type=at_least_one,
        default=12,
        help="number of people, spread evenly over the test people (default: 12)",
    ),
    argument(
        "--port",
        type=port_number(0),
        default=PORT,
        help=f"port of the page, on this machine only; 0: any free port (default: {PORT})",
    ),
    argument("--out", type=Path, help="folder to write instead of serving"),
)
def main(args: Namespace) -> None:
    """Write the folder, and serve it until interrupted."""
    checkpoints = args.checkpoint or [next(filter(Path.is_file, OWN), OWN[0])]
    for path in checkpoints:
        if not path.is_file():
            raise UserError(
                f"{path}: no such checkpoint; train one first: make weights, or snakemake --cores all ablation"
            )
    print(f"studio: preparing {', '.join(map(str, checkpoints))} with strips from {args.data}", flush=True)
    networks = {name_of(path, checkpoints): load_model(path) for path in checkpoints}
    with StripStore(args.data) as strips:
        people = choose(strips, args.people, args.data)
        if args.out:
            check_replaceable(args.out, [DATA, PAGE[0]])
            write_studio(args.out, networks, strips, people)
            print(f"studio: serve {args.out} with any web server, and open {PAGE[0]}")
            return
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / "studio"
            write_studio(folder, networks, strips, people)
            serve(folder, args.port)


def choose(strips: StripStore, count: int, path: Path) -> list[str]:
    """Choose evenly spaced people from the test split, or from the whole store if there is no such split."""
    names = [name for name in strips.persons("test") or strips.persons() if strips.count(name)]
    if not names:
        raise UserError(f"{path}: contains no strips")
    return [names[at] for at in np.linspace(0, len(names) - 1, min(count, len(names))).round().astype(int)]


def name_of(path: Path, paths: list[Path]) -> str:
    """Return a network's name for the page: its tier in a results tree, else its file name; its path if ambiguous."""
    names = [each.parts[-3] if each.name == "checkpoint.pt" and len(each.parts) > 2 else each.stem for each in paths]
    name = names[paths.index(path)]
    return name if names.count(name) == 1 else str(path)


def serve(folder: Path, port: int) -> None:
    """Serve a folder until interrupted."""
    try:
        server = open_server(folder, port)
    except OSError as error:
        raise UserError(f"port {port} cannot be used ({error.strerror}): choose another --port") from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with server:
        print(f"http://127.0.0.1:{server.server_address[1]}/\nEnd with Ctrl-C.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("faze studio: ended")
