"""Import of a user's class, and checks of its return values, before anything is trained or timed.

Each error is one sentence that names the class and the remedy.
"""

import hashlib
import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from faze.base import code_hash
from faze.base.errors import UserError
from faze.training.workload import Workload

ATTRIBUTES = {"batch_size": int, "steps": int, "score": str, "higher_is_better": bool}


def load_class(name: str) -> Workload:
    """Import and instantiate a workload by its name, package.module:Class.

    Raises:
        UserError: the class cannot be imported or instantiated, or is not a `Workload`.
    """
    module, _, attribute = name.partition(":")
    for place in (str(code_hash.ROOT), str(Path.cwd())):
        if place not in sys.path:
            sys.path.insert(0, place)
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing a module can raise anything
        raise UserError(f"workload {name} cannot be imported: {type(error).__name__}: {error}") from None
    if not inspect.isclass(kind) or not issubclass(kind, Workload):
        raise UserError(f"workload {name} is not a subclass of faze.training.workload.Workload")
    if kind.__abstractmethods__:
        raise UserError(f"workload {name} lacks the methods {', '.join(sorted(kind.__abstractmethods__))}")
    workload = kind()
    own = code_hash.sources(module, Path.cwd()) or code_hash.sources(module)
    workload.code = hashlib.sha256("\n".join(own).encode()).hexdigest()[:12]
    wanted = ATTRIBUTES | ({"lr": float} if kind.parameter_groups is Workload.parameter_groups else {})
    for attribute, of in wanted.items():
        if type(getattr(workload, attribute, None)) is not of:
            raise UserError(f"workload {name}: the attribute {attribute} must be of type {of.__name__}")
    return workload


def check(workload: Workload, name: str) -> None:
    """Check a workload's return values on the CPU; raise a UserError that describes the first fault."""
    for fault in faults(workload):
        raise UserError(f"workload {name}: {fault}")


def faults(workload: Workload) -> Iterator[str]:
    """Yield faults in batches, parameter groups, losses and validation; later checks rely on earlier ones."""
    batch, again = workload.batch(0, 0), workload.batch(0, 0)
    if not isinstance(batch, Mapping):
        yield f"batch() returned {type(batch).__name__}, not a mapping from names to tensors"
    for key, value in batch.items():
        if not isinstance(value, Tensor) or len(value) != workload.batch_size:
            yield f"{key} in batch() is not a tensor whose first dimension is batch_size {workload.batch_size}"
        if not torch.equal(value, again[key]):
            yield f"two calls of batch(0, 0) differ in {key}: draw from a generator seeded with both numbers"
    model = workload.build().train()
    groups = workload.parameter_groups(model)
    if not all({"params", "lr"} <= group.keys() for of in groups.values() for group in of):
        yield "parameter_groups() must map each optimiser to a list of groups with `params` and `lr`"
    owned = [(p, optimizer) for optimizer, of in groups.items() for group in of for p in group["params"]]
    owners = dict(owned)
    if len(owned) != len(owners):
        yield "parameter_groups() contains a parameter twice"
    losses = workload.losses(model, batch)
    if not isinstance(losses, Mapping) or not all(isinstance(terms, Mapping) for terms in losses.values()):
        yield "losses() must map each optimiser to its loss terms by name"
    if losses.keys() != groups.keys():
        yield f"losses() has terms for {sorted(losses)}, but the optimisers are {sorted(groups)}"
    for optimizer, terms in losses.items():
        for term, value in terms.items():
            if not isinstance(value, Tensor) or value.dim() or not value.requires_grad or not value.isfinite():
                yield f"the loss {term} of {optimizer} is not a finite scalar with a gradient"
        yield from gradient_faults(optimizer, terms, owners, model)
    model.eval()
    with torch.inference_mode():
        score = workload.validate(model)
    if not torch.as_tensor(score).isfinite():
        yield f"validate() returned {score}"


def gradient_faults(
    optimizer: str, terms: Mapping[str, Tensor], owners: Mapping[Tensor, str], model: nn.Module
) -> Iterator[str]:
    """Yield a fault for each parameter of the optimiser that its losses miss, and each other parameter they reach."""
    names = {p: key for key, p in model.named_parameters()}
    total = torch.stack(list(terms.values())).sum()
    found = torch.autograd.grad(total, list(owners), allow_unused=True, retain_graph=True)
    for parameter, gradient in zip(owners, found, strict=True):
        owner, name = owners[parameter], names[parameter]
        if gradient is None and owner == optimizer:
            yield f"no loss of {optimizer} reaches {name}: leave it out of parameter_groups()"
        if gradient is not None and owner != optimizer:
            yield f"the losses of {optimizer} reach {name} of {owner}: see `detached` in faze.training.workload"
