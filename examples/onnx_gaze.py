"""Estimate gaze from eye strips with a graph from `faze export --onnx gaze`, using only numpy, onnxruntime and OpenCV.

    python examples/onnx_gaze.py gaze.onnx strip.png another.png

A strip is an RGB image of both eyes, normalised as in `faze preprocess`. Its size may be any multiple of the network's
input size. Pitch and yaw describe the direction from the target to the eye, in the normalised camera's frame (x right,
y down, z away from it), as in faze's labels. Positive pitch means up, and positive yaw means left in the image.
"""

import argparse
from collections.abc import Sequence

import cv2
import numpy as np
import onnxruntime


def read_strip(path: str, width: int, height: int) -> np.ndarray:
    """Return an RGB strip (height, width, 3), uint8; a larger image is downsampled by averaging, to avoid aliasing."""
    image = cv2.imread(path)
    if image is None:
        raise SystemExit(f"{path} is not an image that OpenCV can read")
    rows, columns = image.shape[:2]
    if rows % height or columns != rows // height * width:
        raise SystemExit(f"{path}: {columns} x {rows} px is not a multiple of {width} x {height}, so it is not a strip")
    return cv2.resize(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), (width, height), interpolation=cv2.INTER_AREA)


def main(graph: str, paths: Sequence[str]) -> None:
    """Print the gaze for every strip."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    _, height, width, _ = session.get_inputs()[0].shape
    [gaze] = session.run(["gaze"], {"strips": np.stack([read_strip(path, width, height) for path in paths])})
    x, y, z = gaze.T
    angles = np.degrees([np.arctan2(y, np.hypot(x, z)), np.arctan2(x, z)]).T
    for path, (pitch, yaw) in zip(paths, angles, strict=True):
        print(f"{path}: pitch {pitch:+.2f} degrees, yaw {yaw:+.2f} degrees")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", help="ONNX graph")
    parser.add_argument("strips", nargs="+", help="strip images")
    args = parser.parse_args()
    main(args.graph, args.strips)
