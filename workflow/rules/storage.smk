# Results in a storage, as --default-storage-provider s3 asks for (docs/how-to/s3.md); data that lie in one.
from pathlib import Path
from urllib.parse import urlsplit

from snakemake.exceptions import WorkflowError

STORAGE = workflow.storage_settings.default_storage_provider  # None: results lie on this machine


def in_storage(path):
    """Whether the user's data lie in a storage, as s3://bucket/folder, and not on this machine."""
    return "://" in path


def holds_strips(path):
    """Whether a data set is an HDF5 of strips, not a folder of frames; in a storage its name says so."""
    return path.endswith((".h5", ".hdf5")) if in_storage(path) else Path(path).is_file()


def given(path):
    """Take the user's data from where they lie, whatever the storage of the results."""
    return storage(path) if in_storage(path) else local(path)


def check_storage(name):
    """The bucket is there, lets this user in, and holds no results of another checkout, which this one cannot judge.

    The plugin would make a bucket, tell of the rest by a traceback, and take results of any values for those asked for:
    with which values and code they were made is noted in the checkout, in .snakemake/metadata.
    """
    prefix = workflow.storage_settings.default_storage_prefix or ""
    bucket, key = urlsplit(prefix).netloc, urlsplit(prefix).path.strip("/")
    if STORAGE != "s3" or not bucket or not workflow.is_main_process:
        return
    from botocore.exceptions import BotoCoreError, ClientError  # comes with the plugin

    provider = workflow.storage_registry.default_storage_provider
    results = f"{key}/results/{name}/".lstrip("/")
    try:
        provider.s3c.meta.client.head_bucket(Bucket=bucket)
        held = any(provider.s3c.Bucket(bucket).objects.filter(Prefix=results).limit(1))
    except (BotoCoreError, ClientError) as error:
        raise WorkflowError(f"--default-storage-prefix {prefix}: this bucket cannot be used: {error}") from None
    if held and not (provider.local_prefix / bucket / results).exists():
        raise WorkflowError(
            f"s3://{bucket}/{results} was made from another checkout, and only that one knows with which values and "
            "code: go on there, bring its folder .snakemake here, or give another --default-storage-prefix"
        )


def results_folder(wildcards, output):
    """The ablation's folder as a job finds it: of what is in a storage, that of the local copies."""
    folder = f"results/{config['name']}"
    return output[0][: output[0].rindex(f"{folder}/") + len(folder)]


def kept(path):
    """`update`, which leaves an output to the stage; in a storage Snakemake would look for it on this machine."""
    return path if STORAGE else update(path)


def mark(folder):
    """The empty file that a storage gets after a folder: one that broke off there would pass for whole."""
    return touch(f"{folder}.whole") if STORAGE else []


def marks(paths):
    """What `mark` makes, of those paths that are folders; who reads a folder waits for its mark."""
    return [f"{path}.whole" for path in paths if STORAGE and not Path(path).suffix]
