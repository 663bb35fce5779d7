"""Object detection with a single-shot detector, modelled on the SSD in MXNet's guide to automatic mixed precision."""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faze.training.workload import Workload, call_directly


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution followed by BatchNorm."""
    # A bias would have no effect: BatchNorm subtracts each channel's mean, which includes the bias.
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """A residual block with a bottleneck: (N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""

    def __init__(self, inputs: int, outputs: int, inner: int, stride: int):
        super().__init__()
        first, middle = convolution(inputs, inner, 1), convolution(inner, inner, 3, stride)
        self.body = nn.Sequential(first, nn.ReLU(), middle, nn.ReLU(), convolution(inner, outputs, 1))
        self.shortcut = nn.Identity() if (inputs, stride) == (outputs, 1) else convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Transform the features and add the shortcut."""
        return F.relu(self.body(x) + self.shortcut(x))


class Detector(nn.Module):
    """A residual network. Each stage after the first has a head that predicts boxes from the stage's features."""

    def __init__(self, stem: int, stages: list[tuple[int, int, int]], anchors: int, outputs: int):
        super().__init__()
        self.call, self.outputs = call_directly, outputs
        self.stem, self.stages = nn.Sequential(convolution(3, stem, 7, 2), nn.ReLU()), nn.ModuleList()
        for (inputs, *_), (width, inner, depth) in pairwise([(stem,), *stages]):
            rest = (Block(width, width, inner, 1) for _ in range(depth - 1))
            self.stages.append(nn.ModuleList([Block(inputs, width, inner, 2), *rest]))
        self.heads = nn.ModuleList(nn.Conv2d(width, anchors * outputs, 3, padding=1) for width, *_ in stages[1:])

    def forward(self, images: Tensor) -> Tensor:
        """Return class scores and box offsets (N, anchors, outputs) of all anchors for images (N, 3, size, size)."""
        x, features = self.stem(images), []
        for stage in self.stages:
            for block in stage:
                x = self.call(block, x)
            features.append(x)
        maps = [head(x).permute(0, 2, 3, 1) for head, x in zip(self.heads, features[1:], strict=True)]
        return torch.cat([x.reshape(len(images), -1, self.outputs) for x in maps], 1)


def overlaps(first: Tensor, second: Tensor) -> Tensor:
    """Return the IoU (..., A, B) of all pairs of boxes (..., A, 4) and (..., B, 4), as centre x, y, width, height."""
    (a, a_side), (b, b_side) = first[..., :, None, :].split(2, -1), second[..., None, :, :].split(2, -1)
    sides = torch.minimum(a + a_side / 2, b + b_side / 2) - torch.maximum(a - a_side / 2, b - b_side / 2)
    common = sides[..., 0].clamp(min=0) * sides[..., 1].clamp(min=0)
    return common / (a_side.prod(-1) + b_side.prod(-1) - common)


class SSD(Workload):
    """Detection of tinted diamonds, ellipses and rectangles on a textured background. The learning rate is for SGD."""

    batch_size, steps, size = 32, 600, 64  # size: pixels of an image's side
    stem, stages = 16, [(64, 32, 2), (96, 48, 2), (128, 64, 2)]  # width, width of the bottleneck, blocks
    maps, scales = (8, 4), (1.6, 2.3)  # cells per side of each map; sides of a cell's anchors, in cells
    score, higher_is_better, validation, detections = "average precision at IoU 0.5, %", True, 1024, 24  # images; boxes
    published, published_speed = "MXNet's guide to mixed precision, an SSD with ResNet-50 on a GPU", 1.6
    lr, weight_decay, warmup = 0.05, 5e-4, 50  # warmup: steps
    exponents, objects = (1.0, 2.0, 8.0), 4  # the shape of a class is |x|^e + |y|^e < 1; maximum objects per image
    contrast, grain, sides = 1.1, 1, (0.18, 0.5)  # grain: in pixels; sides: of an object, relative to the image's
    background, positives, deviation = 0.2, 8, 0.15  # background's weight; typical number of positives; typical offset

    def build(self) -> nn.Module:
        """Return the detector."""
        return Detector(self.stem, self.stages, len(self.scales), 1 + len(self.exponents) + 4)

    def rate(self, number: int) -> float:
        """Return the learning-rate factor, which rises and then falls linearly."""
        return min((number + 1) / self.warmup, 1 - number / self.steps)

    def anchors(self) -> Tensor:
        """Return the boxes (anchors, 4) of all anchors."""
        at = [(torch.arange(cells) + 0.5) / cells for cells in self.maps]
        return torch.cat([torch.cartesian_prod(x, x, torch.tensor(self.scales) / len(x)) for x in at])[:, [1, 0, 2, 2]]

    def draw(self, count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return images (count, 3, size, size), and the objects' classes (count, objects) and boxes (…, 4)."""
        rand, size = partial(torch.rand, generator=torch.Generator().manual_seed(seed)), self.size // self.grain
        side, ratio, place, kind, tint = rand(count, self.objects, 9).split([1, 2, 2, 1, 3], -1)
        sides = torch.lerp(*torch.tensor(self.sides), side) * (0.75 + 0.6 * ratio).clamp(max=0.99 / self.sides[1])
        boxes = torch.cat([sides / 2 + (1 - sides) * place, sides], -1)
        classes = 1 + (kind[..., 0] * len(self.exponents)).long()
        classes *= ~(overlaps(boxes, boxes).tril(-1) > 0.02).any(2)  # class 0: omitted, as it would overlap another one
        at, powers = (torch.arange(size) + 0.5) / size, torch.tensor((0.0, *self.exponents))[classes]
        x, y = (2 * (at - boxes[..., :2, None]) / sides[..., None]).abs().pow(powers[..., None, None]).unbind(2)
        inside = (8 * (1 - x[..., None, :] - y[..., None])).clamp(0, 1)  # 0 for class 0, as 1 - |x|^0 - |y|^0 = -1
        images = (self.contrast * (2 * tint - 1).mT @ inside.flatten(2)).unflatten(2, (size, size))
        smooth = F.interpolate(torch.eye(8)[None], size=size, mode="linear")[0]
        images += smooth.T @ rand(count, 3, 8, 8) @ smooth + rand(count, 1, size, size) - 1
        return torch.kron(images, torch.ones(self.grain, self.grain)), classes, boxes

    def batch(self, number: int, seed: int) -> dict[str, Tensor]:
        """Return images (N, 3, size, size), and the anchors' classes (N, anchors) and offsets (N, anchors, 4)."""
        images, classes, boxes = self.draw(self.batch_size, 1 + number + 1_000_000 * seed)  # seed 0 is for validation
        anchors = self.anchors()
        ious = overlaps(anchors, boxes) * (classes > 0)[:, None]
        # An anchor is assigned the object that it overlaps most if the IoU is at least 0.5 or is the object's largest.
        iou, index = (ious * ((ious >= 0.5) | (ious == ious.amax(1, keepdim=True)))).max(2)
        centres, sides = boxes.take_along_dim(index[..., None], 1).split(2, -1)
        offsets = torch.cat([(centres - anchors[:, :2]) / anchors[:, 2:], (sides / anchors[:, 2:]).log()], -1)
        return {"images": images, "classes": classes.gather(1, index) * (iou > 0), "offsets": offsets / self.deviation}

    def losses(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the classification and box losses: sums over anchors divided by a constant, averaged over images."""
        predicted, classes = model(batch["images"]).to(torch.get_default_dtype()), batch["classes"]
        scores, offsets = predicted.tensor_split([-4], -1)
        entropy = F.cross_entropy(scores.transpose(1, 2), classes, reduction="none")
        entropy = entropy * (classes > 0).to(torch.get_default_dtype()).clamp(min=self.background)
        distance = F.smooth_l1_loss(offsets, batch["offsets"], reduction="none").sum(-1) * (classes > 0)
        terms = {"classification": entropy, "boxes": distance}
        return {"network": {name: term.sum(1).mean() / self.positives for name, term in terms.items()}}

    def validate(self, model: nn.Module) -> float:
        """Return the average precision, in percent, of the detections that non-maximum suppression keeps."""
        (images, classes, boxes), (centres, sides) = self.draw(self.validation, 0), self.anchors().split(2, -1)
        scores, offsets = model(images.to(next(model.parameters()).device)).cpu().tensor_split([-4], -1)
        shifts, scales = (offsets * self.deviation).split(2, -1)
        confidence, index = scores.softmax(-1)[..., 1:].flatten(1).topk(self.detections)  # sorted
        index, kinds = index // len(self.exponents), 1 + index % len(self.exponents)
        found = torch.cat([centres + sides * shifts, sides * scales.exp()], -1).take_along_dim(index[..., None], 1)
        kept = ~(overlaps(found, found).tril(-1) > 0.45).any(2)  # overlaps no detection of higher confidence
        matches = kept[..., None] & (kinds[..., None] == classes[:, None]) & (overlaps(found, boxes) >= 0.5)
        right = (matches & (matches.cumsum(1) == 1)).any(2)  # counts each object once
        hits = right[kept][confidence[kept].argsort(descending=True)]
        return 100 * (hits * hits.cumsum(0) / torch.arange(1, len(hits) + 1)).sum().item() / int((classes > 0).sum())


class PaperSSD(SSD):
    """An SSD like the guide's: 512 pixels, batches of 8, roughly a ResNet-50. Two more stages detect large objects."""

    batch_size, size, stem, grain, maps = 8, 512, 64, 4, (64, 32, 16, 8, 4)
    stages = [(256, 64, 3), (512, 128, 4), (1024, 256, 6), (2048, 512, 3), (512, 256, 1), (512, 256, 1)]
    scales, objects, sides, validation, detections = (1.4, 1.7, 2.1, 2.5), 12, (0.06, 0.6), 32, 100
