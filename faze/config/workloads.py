"""Names of the workloads that come with faze, and of their score."""

DTED = "faze"
SCORE = "val/score"  # name of a workload's validation in the run log
# Each stands for a case study of the tutorial or of the tuning guide; those with paper sizes need a GPU.
BUILT_IN = {
    "ssd": "examples.ssd:SSD",
    "ssd_paper": "examples.ssd:PaperSSD",
    "cgan": "examples.cgan:CGAN",
    "cgan_paper": "examples.cgan:PaperCGAN",
    "conv_lstm": "examples.conv_lstm:ConvLSTM",
    "conv_lstm_paper": "examples.conv_lstm:PaperConvLSTM",
    "unet3d": "examples.unet3d:UNet3D",
    "unet3d_paper": "examples.unet3d:PaperUNet3D",
    "transformer": "examples.transformer:Transformer",
    "transformer_bucketed": "examples.transformer:BucketedTransformer",
    "transformer_paper": "examples.transformer:PaperTransformer",
    "transformer_bucketed_paper": "examples.transformer:PaperBucketedTransformer",
}


def class_path(workload: str) -> str:
    """Return the class of a workload as module:Class."""
    return BUILT_IN.get(workload, workload)
