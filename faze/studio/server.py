"""The folder of a studio (static files, decoders as ONNX graphs, codes of some strips) and its local server.

A browser needs nothing else: it runs the decoders with onnxruntime-web. Codes are stored in frontal orientation, so
that the page needs one rotation for gaze and one for head pose, as in a walk.

Shapes: N strips; A numbers in an appearance code.
"""

import functools
import http
import http.server
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import whole_folder
from faze.data.store.strips import StripStore
from faze.engine.precision import exact
from faze.model.dted import DTED, Codes
from faze.model.onnx_graphs import Decoder, export_part
from faze.redirection.walk import frontal

STATIC = Path(__file__).parent
PAGE = ("index.html", "studio.js", "worker.js", "studio.css")
RUNTIME = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")  # of onnxruntime-web, in ort/
DATA = "studio.json"
COMPONENTS = 4  # number of sliders of the appearance: the directions in which people differ most
DIGITS = 7  # digits of a code, as float32 has


def write_studio(out: Path, networks: Mapping[str, DTED], strips: StripStore, people: Sequence[str]) -> None:
    """Write the folder atomically.

    Args:
        out: folder.
        networks: trained networks, by their names on the page.
        strips: store of normalised strips.
        people: people whose first strips are offered.

    Raises:
        UserError: onnxruntime-web is missing, or a network's codes are not finite.
    """
    if absent := [name for name in RUNTIME if not (STATIC / "ort" / name).is_file()]:
        raise UserError(f"{STATIC / 'ort' / absent[0]} is missing: run `make studio` once, which needs npm")
    labels = np.degrees([strips.labels(person)[0] for person in people])
    with whole_folder(out) as folder:
        for name in PAGE:
            shutil.copyfile(STATIC / name, folder / name)
        (folder / "ort").mkdir()
        for name in RUNTIME:
            shutil.copyfile(STATIC / "ort" / name, folder / "ort" / name)
        models = []
        for number, (name, dted) in enumerate(networks.items()):
            decoder = f"decoder_{number}.onnx"
            export_part(Decoder(dted), folder / decoder)
            size = {"height": dted.model.image_height_px, "width": dted.model.image_width_px}
            models.append({"name": name, "decoder": decoder, **size, **_codes(dted, strips, people)})
        for number, person in enumerate(people):
            picture = cv2.cvtColor(strips.pixels(person, slice(1))[0], cv2.COLOR_RGB2BGR)
            if not cv2.imwrite(str(folder / f"strip_{number}.png"), picture):
                raise OSError(f"{folder}: a picture cannot be written")
        rows = [
            {"person": person, "picture": f"strip_{number}.png", "label_deg": label.round(3).tolist()}
            for number, (person, label) in enumerate(zip(people, labels, strict=True))
        ]
        content = {"dataset": strips.dataset, "strips": rows, "models": models}
        (folder / DATA).write_text(json.dumps(content), encoding="utf-8")


@torch.inference_mode()
def _codes(dted: DTED, strips: StripStore, people: Sequence[str]) -> dict[str, Any]:
    """Return the frontal codes of first strips, and the directions in which their appearance codes differ most."""
    with exact(dted):
        fronts = [frontal(dted, strips, person)[2] for person in people]
    for person, front in zip(people, fronts, strict=True):
        if not all(code.isfinite().all() for code in front):
            raise UserError(
                f"the codes of person {person} are not finite, because the training of this network diverged"
            )
    codes = Codes(*(torch.cat(parts).cpu() for parts in zip(*fronts, strict=True)))
    return {
        "codes": {name: _rounded(code.flatten(1).numpy()) for name, code in codes._asdict().items()},
        "components": _rounded(components(codes.app.double().numpy())),
    }


def components(app: NDArray[np.float64]) -> NDArray[np.float64]:
    """Find the directions in which appearance codes (N, A) differ most, each scaled to one standard deviation."""
    centred = app - app.mean(0)
    _, lengths, directions = np.linalg.svd(centred, full_matrices=False)
    deviations = lengths / np.sqrt(max(1, len(app) - 1))
    return (deviations[:, None] * directions)[:COMPONENTS]


def _rounded(numbers: NDArray) -> list[list[float]]:
    return [[float(f"{number:.{DIGITS}g}") for number in row] for row in numbers]


class Handler(http.server.SimpleHTTPRequestHandler):
    """Request handler that serves files as they currently are on disk, without logging."""

    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".onnx": "application/octet-stream",
    }

    def send_head(self) -> object:
        """Reject requests whose Host header is not this machine's own name.

        Otherwise a foreign page could rebind its host name to 127.0.0.1 and read the strips (DNS rebinding).
        """
        host, port = self.headers.get("Host", ""), self.server.server_address[1]
        if host not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            self.send_error(http.HTTPStatus.MISDIRECTED_REQUEST, "use the address 127.0.0.1")
            return None
        return super().send_head()

    def end_headers(self) -> None:
        """Forbid caching, since the same address can serve other networks later."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Suppress the request log."""


def open_server(folder: Path, port: int) -> http.server.ThreadingHTTPServer:
    """Bind a server for a folder to 127.0.0.1; port 0 selects a free port.

    Raises:
        OSError: the port is taken.
    """
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), functools.partial(Handler, directory=str(folder)))
