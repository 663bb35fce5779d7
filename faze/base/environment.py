"""Environment variables that faze inherits from another launcher, a scheduler, a debugger or a shell profile.

A variable that would make the log or the report wrong is refused, or kept away from the processes of faze. Others that
can change speed, memory or rounding are recorded with the machine.
"""

import getpass
import os

from faze.base.errors import UserError

LAUNCHER = "FAZE_LAUNCHER"  # process id of the torchrun that faze started, in the environment of its processes
MEETING = "PET_RDZV_ENDPOINT"  # address where the processes of several nodes meet

# Variables that make libraries compute fp32 operations in another number format -> values without that effect.
OVERRIDES = {
    "ONEDNN_DEFAULT_FPMATH_MODE": ("", "STRICT"),
    "DNNL_DEFAULT_FPMATH_MODE": ("", "STRICT"),
    "NVIDIA_TF32_OVERRIDE": ("",),
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": ("", "0"),
}
# Prefixes of variables that change what torch.compile generates, and those that do not, or whose effect is logged.
COMPILING = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_", "TORCH_DYNAMO_")
HARMLESS = (
    *("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_VERBOSE"),
    *("TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS", "TORCHINDUCTOR_WORKER_START"),
    *("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_AUTOGRAD_CACHE"),
)
# Variables of a process that another launcher started -> their values if it started a single process.
SINGLE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
# OpenMP reads these when it is loaded. They reduce the number of threads below --threads, or bind the main thread, and
# therefore every process that it starts, to one core.
THREADS = (
    *("OMP_DYNAMIC", "OMP_MAX_ACTIVE_LEVELS", "OMP_NESTED", "OMP_PLACES", "OMP_PROC_BIND", "OMP_THREAD_LIMIT"),
    *("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET", "KMP_DEVICE_THREAD_LIMIT", "KMP_ALL_THREADS"),
)
COMPILERS = ("CC", "CXX")
# Variables that can change speed, memory or rounding: prefixes, then endings of names that do not.
RECORDED = (
    *("ATEN_", "CUBLAS", "CUDNN_", "DNNL_", "GLOO_", "GOMP_", "KMP_", "MALLOC_", "MKL_", "NCCL_", "OMP_", "ONEDNN_"),
    *("PYTORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "TORCH_", "TRITON_"),
    *("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "LD_PRELOAD", "PYTHONMALLOC", "PYTHONOPTIMIZE"),
)
UNRECORDED = ("_NUM_THREADS", "_DIR", "_HOME", "_PATH", "TORCH_NCCL_ASYNC_ERROR_HANDLING")  # torchrun sets the last one


def check_environment() -> None:
    """Check that no variable changes number formats or compiled code, or belongs to one of several processes.

    Raises:
        UserError: one does.
    """
    for name, harmless in OVERRIDES.items():
        if (value := os.environ.get(name, "")).upper() not in harmless:
            raise UserError(f"{name}={value} would change the number format of fp32 operations: unset this variable")
    for name, value in sorted(os.environ.items()):
        if name.startswith(COMPILING) and name not in HARMLESS:
            raise UserError(f"{name}={value} would change what a tier with torch.compile runs: unset this variable")
    if LAUNCHER in os.environ:
        return
    singles = SINGLE if MEETING in os.environ else SINGLE | {"PET_NNODES": "1"}
    found = ((name, single, os.environ.get(name)) for name, single in singles.items())
    if several := [f"{name}={value}" for name, single, value in found if value not in (None, "", single)]:
        raise UserError(
            f"{', '.join(several)} in the environment, from another launcher: faze would wait for processes that "
            "nobody starts, or write the same files several times. Unset it, or start faze without torchrun. For "
            f"several nodes, set {MEETING}"
        )


def clean_environment() -> None:
    """Check the environment, then keep inherited variables away from this process; call it before importing torch.

    Raises:
        UserError: a variable must be unset by the user.
    """
    check_environment()
    unwanted = [*THREADS, *(name for name in COMPILERS if not os.environ.get(name))]
    if LAUNCHER not in os.environ:
        unwanted += [*SINGLE, "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "PYTHON_EXEC"]
        prefixes = ("TORCHELASTIC_", "ROLE_") if MEETING in os.environ else ("TORCHELASTIC_", "ROLE_", "PET_")
        unwanted += [name for name in os.environ if name.startswith(prefixes) and name != "PET_SHUTDOWN_TIMEOUT"]
    for name in unwanted:
        os.environ.pop(name, None)
    name_user()


def name_user() -> None:
    """Set $USER if this user has no name, as in many containers: libraries ask for the name and fail without it."""
    try:
        getpass.getuser()
    except (KeyError, OSError, ImportError):
        os.environ["USER"] = str(os.getuid())


def recorded_variables() -> str:
    """Return the variables that can change speed, memory or rounding, as NAME=value; "" if there are none."""
    return ", ".join(
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name.startswith(RECORDED) and not name.endswith(UNRECORDED) and value
    )
