# Results and data in a storage provider, selected by --default-storage-provider s3 (docs/how-to/s3.md).
from pathlib import Path
from urllib.parse import urlsplit

from snakemake.exceptions import WorkflowError

STORAGE = workflow.storage_settings.default_storage_provider  # None: results are on this machine


def in_storage(path):
    """Return whether the user's data are in a storage, such as s3://bucket/folder."""
    return "://" in path


def given(path):
    """Return the user's data as an input, independent of the storage of the results."""
    return storage(path) if in_storage(path) else local(path)


def check_storage(name):
    """Check that the bucket is accessible and contains no results of another checkout.

    The plugin would create a missing bucket and report other errors by tracebacks. It would also accept results made with
    any values, because values and code are recorded in the checkout, in .snakemake/metadata.
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
    """Return the ablation's folder as a job sees it: in a storage, that of the local copies."""
    folder = f"results/{config['name']}"
    return output[0][: output[0].rindex(f"{folder}/") + len(folder)]


def kept(path):
    """Mark an output with `update`, so that the stage can keep it; in a storage Snakemake would search this machine."""
    return path if STORAGE else update(path)


def mark(folder):
    """Return an empty output stored after a folder, without which an incomplete folder would pass for complete."""
    return touch(f"{folder}.whole") if STORAGE else []


def marks(paths):
    """Return the outputs of `mark` for the folders among the paths, so that readers wait for them."""
    return [f"{path}.whole" for path in paths if STORAGE and not Path(path).suffix]
