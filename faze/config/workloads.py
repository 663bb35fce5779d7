"""Names of the workloads that come with faze, and of their score."""

DTED = "faze"
SCORE = "val/score"  # name of a workload's validation in the run log
# Each stands for a case study of the tutorial or of the tuning guide; those with paper sizes need a GPU.
BUILT_IN = {
    "ssd": "faze.workloads.ssd:SSD",
    "ssd_paper": "faze.workloads.ssd:PaperSSD",
    "cgan": "faze.workloads.cgan:CGAN",
    "cgan_paper": "faze.workloads.cgan:PaperCGAN",
    "conv_lstm": "faze.workloads.conv_lstm:ConvLSTM",
    "conv_lstm_paper": "faze.workloads.conv_lstm:PaperConvLSTM",
    "unet3d": "faze.workloads.unet3d:UNet3D",
    "unet3d_paper": "faze.workloads.unet3d:PaperUNet3D",
    "transformer": "faze.workloads.transformer:Transformer",
    "transformer_bucketed": "faze.workloads.transformer:BucketedTransformer",
    "transformer_paper": "faze.workloads.transformer:PaperTransformer",
    "transformer_bucketed_paper": "faze.workloads.transformer:PaperBucketedTransformer",
}


def class_path(workload: str) -> str:
    """Return the class of a workload as module:Class."""
    return BUILT_IN.get(workload, workload)
