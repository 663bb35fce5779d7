"""Every parser of untrusted bytes."""

import targets_config
import targets_data
import targets_manifest
import targets_results
import targets_torch

_ALL = (
    *targets_data.TARGETS,
    *targets_manifest.TARGETS,
    *targets_config.TARGETS,
    *targets_torch.TARGETS,
    *targets_results.TARGETS,
)
TARGETS = {target.name: target for target in _ALL}
