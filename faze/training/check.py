"""Import of a user's class, and checks of its return values, before anything is trained or timed.

Each error is one sentence that names the class and the remedy.
"""

import contextlib
import hashlib
import importlib
import inspect
import math
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from numbers import Real
from pathlib import Path

import torch
from torch import Tensor, nn

from faze.base import code_hash
from faze.base.errors import UserError
from faze.training.workload import Batches, Workload

ATTRIBUTES = {"batch_size": int, "steps": int, "score": str, "higher_is_better": bool}
ATTRIBUTES |= dict.fromkeys(("momentum", "weight_decay", "clip_norm"), float)
INSTALLED = ("site-packages", sysconfig.get_path("stdlib"), f"{code_hash.ROOT}/faze/", "<")  # not a user's code


def load_class(name: str) -> Workload:
    """Import and instantiate a workload by its name, package.module:Class.

    Raises:
        UserError: the class cannot be imported or instantiated, or is not a `Workload`.
    """
    if not re.fullmatch(r"\w+(\.\w+)*:\w+", name):
        raise UserError(
            f"workload {name} does not have the form package.module:Class; rename a file such as my-net.py to my_net.py"
        )
    module, _, attribute = name.partition(":")
    for place in (str(code_hash.ROOT), str(Path.cwd())):
        if place not in sys.path:
            sys.path.insert(0, place)
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # importing a module can raise anything
        raise UserError(f"workload {name} cannot be imported: {describe(error)}") from None
    if not inspect.isclass(kind) or not issubclass(kind, Workload):
        raise UserError(f"workload {name} is not a subclass of faze.training.workload.Workload")
    if kind.__abstractmethods__:
        raise UserError(f"workload {name} lacks the methods {', '.join(sorted(kind.__abstractmethods__))}")
    with named(name):
        workload = kind()
    own = code_hash.sources(module, Path.cwd()) or code_hash.sources(module)
    workload.code = hashlib.sha256("\n".join(own).encode()).hexdigest()[:12]
    wanted = ATTRIBUTES | ({"lr": float} if kind.parameter_groups is Workload.parameter_groups else {})
    for attribute, of in wanted.items():
        value = getattr(workload, attribute, None)
        if type(value) is not of and not (of is float and type(value) is int):
            raise UserError(f"workload {name}: the attribute {attribute} must be of type {of.__name__}, not {value!r}")
    return workload


def check(workload: Workload, name: str) -> None:
    """Check a workload's return values on the CPU; raise a UserError that describes the first fault."""
    with named(name):
        for fault in faults(workload):
            raise UserError(fault)


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Convert an error in the methods of a user's class to a UserError that names the class."""
    try:
        yield
    except Exception as error:  # a user's code can raise anything
        raise UserError(f"workload {name}: {describe(error)}") from None


def describe(error: BaseException) -> str:
    """Return an error's type, the first line of its message, and where in the user's code it was raised."""
    if isinstance(error, UserError):
        return str(error)
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    places += re.findall(r'File "(.+)", line (\d+)', str(error))  # in errors of torch.compile
    own = [f" ({file}, line {line})" for file, line in places if not any(part in file for part in INSTALLED)]
    return f"{type(error).__name__}: {first_line(error)}{(own or [''])[-1]}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def faults(workload: Workload) -> Iterator[str]:
    """Yield faults in batches, parameter groups, losses and validation; later checks rely on earlier ones."""
    source = Batches(workload, 0)
    batch, first = source[0], {key: value.clone() for key, value in source[0].items()}
    source[workload.steps - 1]
    model, dtype = workload.build().train(), torch.get_default_dtype()
    for key, parameter in model.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != dtype:
            yield f"{key} is {parameter.dtype}: build() must use torch's default dtype, which proofs change"
    groups = workload.parameter_groups(model)
    if not all({"params", "lr"} <= group.keys() for of in groups.values() for group in of):
        yield "parameter_groups() must map each optimiser to a list of groups with `params` and `lr`"
    owned = [(p, optimizer) for optimizer, of in groups.items() for group in of for p in group["params"]]
    owners = {p: optimizer for p, optimizer in owned if p.requires_grad}
    if len(owned) != len(dict(owned)):
        yield "parameter_groups() contains a parameter twice"
    if not owners:
        yield "no parameter requires a gradient: keep layers in an nn.ModuleList, not in a list"
    losses = workload.losses(model, workload.prepare(batch))
    if not isinstance(losses, Mapping) or not all(isinstance(terms, Mapping) for terms in losses.values()):
        yield 'losses() must map each optimiser to its loss terms by name, such as {"network": {"loss": loss}}'
    for key, value in source[0].items():
        if not torch.equal(value.nan_to_num(), first[key].nan_to_num()):
            fault = f"two calls of batch(0, 0) differ in {key}: draw from a generator seeded with both numbers"
            yield fault + ", and do not change a batch in place"
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
    if not (isinstance(score, Real) or getattr(score, "ndim", None) == 0) or not math.isfinite(score):
        yield f"validate() returned {score}, not one finite number"


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
            yield f"no loss of {optimizer} reaches {name}: call requires_grad_(False) on it in build()"
        if gradient is not None and owner != optimizer:
            yield f"the losses of {optimizer} reach {name} of {owner}: see `detached` in faze.training.workload"
