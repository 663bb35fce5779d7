"""A roofline that is measured quickly."""

import torch

from faze.benchmark.roofline import Roofline


def small_roofline(copy_mib: int, order: int) -> Roofline:
    """Return a roofline of the CPU that is measured with a small array, small matrices and short blocks."""
    roofline = Roofline(torch.device("cpu"))
    roofline.copy_mib, roofline.order, roofline.seconds = copy_mib, order, 0.01
    return roofline
