"""Import of a user's class, and checks of its return values, before anything is trained or timed."""

import contextlib
import hashlib
import importlib
import math
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from faze.base import code_hash
from faze.base.errors import UserError
from faze.training.workload import Batches, Workload

REQUIRED = {"batch_size": int, "steps": int, "score": str, "higher_is_better": bool}
INSTALLED = ("site-packages", sysconfig.get_path("stdlib"), f"{code_hash.ROOT}/faze/", "<")  # not a user's code


def instantiate(name: str) -> Any:
    """Import a user's class by its name, package.module:Class, and call it without arguments."""
    module, _, attribute = name.partition(":")
    for place in (str(code_hash.ROOT), str(Path.cwd())):
        if place not in sys.path and not sys.flags.safe_path:
            sys.path.insert(0, place)
    with named(name):
        return getattr(importlib.import_module(module), attribute)()


def load_class(name: str, checked: bool = False) -> Workload:
    """Import and instantiate a workload by its name, package.module:Class; if `checked`, check its return values.

    Raise a UserError if the class cannot be imported or instantiated, is not a `Workload`, or fails a check.
    """
    workload = instantiate(name)
    with named(name):
        if not isinstance(workload, Workload):
            raise UserError("this is not a subclass of faze.training.workload.Workload")
        for required, kind in REQUIRED.items():
            value = getattr(workload, required, None)
            if not isinstance(value, kind):
                raise UserError(f"the attribute {required} must be of type {kind.__name__}, not {value!r}")
        if checked:
            check(workload)
        module = name.partition(":")[0]
        own = code_hash.sources(module, Path.cwd()) or code_hash.sources(module)
    workload.code = hashlib.sha256("\n".join(own).encode()).hexdigest()[:12]
    return workload


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Convert an error in a user's module or class to a UserError that begins with the name."""
    try:
        yield
    except (Exception, SystemExit) as error:  # a user's code can raise anything
        raise UserError(f"{name}: {describe(error)}") from None


def describe(error: BaseException) -> str:
    """Return an error's type, the first line of its message, and where in the user's code it was raised."""
    if isinstance(error, UserError):
        return str(error)
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    places += re.findall(r'File "(.+)", line (\d+)', str(error))  # in errors of torch.compile
    own = [f" ({file}, line {line})" for file, line in places if not any(part in file for part in INSTALLED)]
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]]) + (own or [""])[-1]


def check(workload: Workload) -> None:
    """Check a workload's return values on the CPU; later checks rely on earlier ones."""
    source = Batches(workload, 0)
    batch, first = source[0], {key: value.clone() for key, value in source[0].items()}
    source[workload.steps - 1]
    model, dtype = workload.build().train(), torch.get_default_dtype()
    for key, parameter in model.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != dtype:
            raise UserError(f"{key} is {parameter.dtype}: build() must use torch's default dtype, which proofs change")
    groups = workload.parameter_groups(model)
    if not all({"params", "lr"} <= group.keys() for of in groups.values() for group in of):
        raise UserError("parameter_groups() must map each optimiser to a list of groups with `params` and `lr`")
    owned = [(p, optimizer) for optimizer, of in groups.items() for group in of for p in group["params"]]
    losses = workload.losses(model, workload.prepare(batch))
    mappings = isinstance(losses, Mapping) and all(isinstance(terms, Mapping) for terms in losses.values())
    if not mappings or losses.keys() != groups.keys():
        raise UserError(f'losses() must be like {{"network": {{"loss": loss}}}}; optimisers: {", ".join(groups)}')
    for key, value in source[0].items():
        if not torch.equal(value.nan_to_num(), first[key].nan_to_num()):
            fault = f"two calls of batch(0, 0) differ in {key}: draw from a generator seeded with both numbers"
            raise UserError(f"{fault}, and change no batch in place")
    check_gradients(model, losses, {p: optimizer for p, optimizer in owned if p.requires_grad})
    with torch.inference_mode():
        score = workload.validate(model.eval())
    if not (isinstance(score, Real) or getattr(score, "ndim", None) == 0) or not math.isfinite(score):
        raise UserError(f"validate() returned {score}, not one finite number")


def check_gradients(model: nn.Module, losses: Mapping[str, Mapping[str, Tensor]], owners: Mapping[Tensor, str]) -> None:
    """Check that each loss term is finite, and that each optimiser's losses reach exactly its own parameters."""
    names = {parameter: key for key, parameter in model.named_parameters()}
    if not owners:
        raise UserError("no parameter requires a gradient: keep layers in an nn.ModuleList, not in a list")
    for optimizer, terms in losses.items():
        for term, value in terms.items():
            if not isinstance(value, Tensor) or value.dim() or not value.requires_grad or not value.isfinite():
                raise UserError(f"the loss {term} of {optimizer} is not a finite scalar with a gradient")
        gradients = torch.autograd.grad(sum(terms.values()), list(owners), allow_unused=True, retain_graph=True)
        for (parameter, owner), gradient in zip(owners.items(), gradients, strict=True):
            name = names[parameter]
            if gradient is None and owner == optimizer:
                raise UserError(f"no loss of {owner} reaches {name}: call requires_grad_(False) on it in build()")
            if gradient is not None and owner != optimizer:
                raise UserError(
                    f"the losses of {optimizer} reach {name} of {owner}: use faze.training.workload.detached"
                )
