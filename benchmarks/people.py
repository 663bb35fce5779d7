"""Cost of rendering `measured` people, compared with `simple` ones: CPU time of one thread, person by person.

    OMP_NUM_THREADS=1 python benchmarks/people.py --people 24
    OMP_NUM_THREADS=1 PYTHONPATH=another/checkout python benchmarks/people.py --people 2 --frames 150

Both kinds of a person have the same seed. Sampling and rendering are timed; writing files is not. The time includes
what is painted once per person, so the frames per second of one core match the default's only with its 150 frames per
person.
"""

import argparse
import dataclasses
import time

import numpy as np
from rendered_frames import ROOT

from faze.benchmark.rows import ratio_interval
from faze.config.check import build
from faze.config.parameters import Synthetic
from faze.config.yaml_files import read_yaml
from faze.data.synthetic.people import Role, render_frames, sample_frames, use_one_thread


def main() -> None:
    """Print the milliseconds per frame for both kinds, and their ratio with its interval over people."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=24, help="of each data set")
    parser.add_argument("--frames", type=int, default=12)
    args = parser.parse_args()
    use_one_thread()
    values = build(Synthetic, read_yaml(ROOT / "config" / "config.yaml")["synthetic"])
    took: dict[str, list[float]] = {"simple": [], "measured": []}
    for index in range(args.people):
        for role in (Role("mpiifacegaze", "test", index), Role("gazecapture", "train", index)):
            for kind, of_kind in took.items():
                synthetic = dataclasses.replace(values, people=kind, frames_per_person=args.frames)
                began = time.process_time()
                frames = sample_frames(role, synthetic)
                for _ in render_frames(role, frames, synthetic.seed):
                    pass
                of_kind.append(1000 * (time.process_time() - began) / args.frames)
    simple, measured = (np.array(of_kind) for of_kind in took.values())
    print(f"{2000 / (simple.mean() + measured.mean()):.1f} frames per second of one core")
    print(f"simple {simple.mean():.1f} ms a frame, measured {measured.mean():.1f} ms a frame")
    found = ratio_interval(measured, simple)
    print(f"measured / simple {found['ratio']:.2f} ({found['low']:.2f} to {found['high']:.2f} over people)")


if __name__ == "__main__":
    main()
