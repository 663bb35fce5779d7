# An image that runs the workflow. Results and Snakemake's records of them are written to /out, a folder of the host:
#   docker build --tag faze .
#   docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/out" faze       # the demo
#   docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/out" faze ablation --configfile /out/mine.yaml
# PyPI's torch includes gigabytes of CUDA libraries. To build without them, add the address of PyTorch's CPU packages:
# --build-arg PIP_EXTRA_INDEX_URL=ADDRESS
FROM python:3.11-slim

RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git make \
    && rm -r /var/lib/apt/lists/* \
    && git config --system safe.directory /faze

WORKDIR /faze
COPY . .
ARG PIP_EXTRA_INDEX_URL
RUN PIP_NO_CACHE_DIR=1 make .venv/installed

# For users that the image does not know: torch.compile needs a writable home, and Snakemake a name.
ENV HOME=/tmp USER=faze
ENTRYPOINT [".venv/bin/snakemake", "--cores", "all", "--directory", "/out"]
CMD ["ablation", "--configfile", "config/sizes/demo.yaml"]
