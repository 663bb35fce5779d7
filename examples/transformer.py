"""A transformer encoder that sorts token sequences of different lengths, with or without bucketing by length."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faze.training.workload import Workload, call_directly


def gelu(x: Tensor) -> Tensor:
    """Compute the GELU of a tensor of any shape with five point-wise operations, as in the tuning guide."""
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class Block(nn.Module):
    """Attention and an MLP; each normalises its input and adds its output to the input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """Map x (n, length, width) to the same shape, attending only to positions where `real` (n, length) is true."""
        heads = self.query_key_value(self.attention_norm(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*heads.unbind(), attn_mask=real[:, None, None])
        x = x + self.output(attended.transpose(1, 2).flatten(2))
        return x + self.narrow(gelu(self.widen(self.mlp_norm(x))))


class Encoder(nn.Module):
    """Embeddings of tokens and of relative positions, blocks, and a classifier for each position."""

    def __init__(self, symbols: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.call = call_directly
        self.padding = symbols  # the token after the last symbol
        self.symbol = nn.Embedding(symbols + 1, width)
        self.register_buffer("frequencies", torch.arange(1, width // 2 + 1) * (math.pi / 2))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.classify = nn.LayerNorm(width), nn.Linear(width, symbols)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (n, length), int64, to logits (n, length, symbols)."""
        real = tokens != self.padding
        place = (torch.arange(tokens.shape[1], device=tokens.device) + 0.5) / real.sum(1, keepdim=True)
        angles = place[:, :, None] * self.frequencies
        x = self.symbol(tokens) + torch.cat((angles.sin(), angles.cos()), 2)
        for block in self.blocks:
            x = self.call(block, x, real)
        return self.classify(self.norm(x))


class Transformer(Workload):
    """Sorting of sequences: the class at position i is the i-th smallest token of its sequence.

    Each length bucket contains the same number of sequences, so most sequences are short. Every batch is padded to
    the greatest bucket length. The learning rate is for AdamW.
    """

    batch_size, steps = 32, 400
    score = "token accuracy, %"
    higher_is_better = True
    lr, weight_decay, clip_norm = 5e-3, 0.01, 1.0
    symbols = 32
    width, heads, layers = 64, 4, 2
    shortest = 8
    bucket_lengths: tuple[int, ...] = (16, 24, 48, 128)  # the greatest length in each bucket
    bucketed = False
    validation_batches = 32

    def build(self) -> nn.Module:
        """Return the encoder."""
        return Encoder(self.symbols, self.width, self.heads, self.layers)

    def rate(self, number: int) -> float:
        """Return the learning-rate factor: a linear rise over a tenth of the steps, then a fall along half a cosine."""
        warm_up = max(1, self.steps // 10)
        cosine = math.cos(math.pi * max(0, number - warm_up) / (self.steps - warm_up))
        return min((number + 1) / warm_up, 0.5 + 0.5 * cosine)

    def batch(self, number: int, seed: int) -> dict[str, Tensor]:
        """Return tokens and labels (batch_size, length) as int64; the padding token is `symbols`."""
        return self._batch(number, seed, bucketed=self.bucketed)

    def _batch(self, number: int, seed: int, *, bucketed: bool) -> dict[str, Tensor]:
        """Draw the sequences of len(bucket_lengths) successive steps; return one bucket or a random part of all."""
        block, part = divmod(number, len(self.bucket_lengths))
        # Torch uses only 32 bits of the seed of a CPU generator.
        random = torch.Generator().manual_seed((seed * 1_000_003 + block) % 2**32)
        greatest = torch.tensor(self.bucket_lengths)
        least = torch.cat((torch.tensor([self.shortest]), greatest[:-1] + 1))
        spread = torch.rand(self.batch_size, len(greatest), generator=random) * (greatest - least + 1)
        lengths = (least + spread.long()).T.reshape(-1, 1)
        tokens = torch.randint(self.symbols, (len(lengths), self.bucket_lengths[-1]), generator=random)
        tokens.masked_fill_(torch.arange(tokens.shape[1]) >= lengths, self.symbols)
        if bucketed:
            part = int(torch.randperm(len(greatest), generator=random)[part])  # random order of the buckets
            tokens = tokens[:, : self.bucket_lengths[part]]
        else:
            tokens = tokens[torch.randperm(len(tokens), generator=random)]
        tokens = tokens[part * self.batch_size :][: self.batch_size].contiguous()
        return {"tokens": tokens, "labels": tokens.sort(1).values}  # padding, the greatest token, remains last

    def losses(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the cross-entropy, averaged over the tokens of each sequence and then over sequences."""
        logits, labels = model(batch["tokens"]).to(torch.get_default_dtype()), batch["labels"]
        each = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=self.symbols, reduction="none")
        return {"network": {"cross_entropy": (each.sum(1) / (labels != self.symbols).sum(1)).mean()}}

    def validate(self, model: nn.Module) -> float:
        """Return the accuracy, in percent, over all tokens of the batches for seed -1, which no training run uses."""
        device, right, count = next(model.parameters()).device, 0, 0
        for number in range(self.validation_batches):
            tokens, labels = (x.to(device) for x in self._batch(number, -1, bucketed=True).values())
            right += int((model(tokens).argmax(2) == labels).sum())  # padding is never predicted
            count += int((labels != self.symbols).sum())
        return 100 * right / count


class BucketedTransformer(Transformer):
    """`Transformer` on the same sequences, but each batch comes from one bucket and is padded to its length."""

    bucketed = True


class PaperTransformer(Transformer):
    """An encoder with half as many layers as BERT-large; the learning rate is for AdamW."""

    lr = 2e-4
    symbols = 1000
    width, heads, layers = 1024, 16, 12
    bucket_lengths = (64, 96, 192, 512)
    validation_batches = 4


class PaperBucketedTransformer(BucketedTransformer, PaperTransformer):
    """`PaperTransformer` with buckets."""
