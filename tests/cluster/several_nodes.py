"""One process of a small ddp training in float64; the first one writes the losses of the steps.

torchrun starts it, on one node or several: several_nodes.py FILE
"""

import sys

import numpy as np
import torch
from trajectory import STEPS, tier, trained

from faze.engine.parallel import join

engine = tier("ddp")
with join(engine, threads=1) as world:
    losses = trained(engine, world, steps=STEPS, dtype=torch.float64).losses
    if world.rank == 0:
        np.save(sys.argv[1], [world.size, *losses])
