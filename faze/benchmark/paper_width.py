"""The ladder at the paper's width: at the default's small size, activations are not what fills memory."""

import dataclasses

from faze.config.stage_config import Resolved

WIDTH = {"growth": 32, "blocks": 4, "image_height_px": 64, "image_width_px": 256}  # as in config/paper.yaml
WHOLE = {"decoder_channels": 32, "z_app": 64, "z_gaze": 2, "z_head": 16}  # and there, as the defaults have it
PAIRS = 8  # of a step, if its chunks allow so few
ROUNDS = 3  # at most


def at_paper_width(config: Resolved) -> Resolved | None:
    """Give the benchmark's configuration at the paper's width: a small batch, and few steps of about a second each.

    The batch keeps its number of chunks, which is what processes and accumulation share.

    Returns:
        None where it is not wanted (benchmark.paper_width), nothing new, or beyond the stored strips.
    """
    model = dataclasses.replace(config.model, **WIDTH, **WHOLE)
    aspect = config.model.image_width_px * model.image_height_px == config.model.image_height_px * model.image_width_px
    fits = aspect and config.preprocess.width_px % model.image_width_px == 0
    if not config.benchmark.paper_width or not fits or model == config.model:
        return None
    chunks = config.train.global_batch // config.loss.chunk_pairs
    chunk_pairs = max(1, PAIRS // chunks)
    few = dataclasses.replace(
        config.benchmark,
        **{"rounds": min(ROUNDS, config.benchmark.rounds), "blocks": 2, "block_steps": 1},
        **{"warmup_steps": 1, "warmup_blocks": 0},
    )
    changed = {
        "model": model,
        "loss": dataclasses.replace(config.loss, chunk_pairs=chunk_pairs),
        "train": dataclasses.replace(config.train, global_batch=chunks * chunk_pairs),
        "benchmark": few,
    }
    return dataclasses.replace(config, sections={**config.sections, **changed})
