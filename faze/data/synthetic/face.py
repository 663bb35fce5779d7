"""The painted parts of a person: the surface and colours of the face, irises, lashes, and lids that follow the gaze.

The face is a displaced ellipsoid; the iris is the cap of the eyeball around the optical axis, without refraction.
Everything is in the head frame and in mm.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.person import SyntheticPerson

Image = NDArray[np.float32]  # (h, w) or (h, w, 3) RGB, 0..1
# Samples over a plane; x and y of the first sample, and the number of samples per unit along x and y.
Map = tuple[Image, tuple[float, float, float, float]]
_LID_MM = 0.9  # from the eyeball to the lids' outer side
_SHAPE_PER_MM, _COLOUR_PER_MM = 1, 2  # map samples
_LEFT, _TOP, _RIGHT, _BOTTOM = -104.0, -136.0, 104.0, 152.0
CENTRE_MM = np.array([0.0, 20.0, 84.0])
AXES_MM = np.array([77.0, 120.0, 96.0])
_SOFT_MM = 3.0  # range of depth differences over which the lids' bulge blends into the face
_LID_SLOPE = 1.2  # slope of the bulge's sides; steeper sides would hide a turned head's outer eye corners
_BROW_FINENESS = 2  # mask samples per map sample


def step(value: Image, width: float) -> Image:
    """Compute a smooth step from 0 (below -width/2) to 1 (above width/2)."""
    share = np.clip(value / width + 0.5, 0, 1)
    return share * share * (3 - 2 * share)


def bump(x: Image, y: Image, at: tuple[float, float], size: tuple[float, float]) -> Image:
    """Compute a Gaussian bump of height 1 that falls to 1/e at a distance of `size`."""
    return np.exp(-(((x - at[0]) / size[0]) ** 2) - ((y - at[1]) / size[1]) ** 2)


def smooth_noise(rng: np.random.Generator, shape: tuple[int, ...], size: float) -> Image:
    """Draw noise with a standard deviation of about 1 and features `size` samples wide."""
    rows, columns = (max(4, int(n / size) + 2) for n in shape)
    coarse = rng.standard_normal((rows, columns), np.float32)
    return cv2.resize(coarse, shape[::-1], interpolation=cv2.INTER_CUBIC)


def draw_line(mask: NDArray[np.uint8], start: NDArray, end: NDArray, value: int, thickness: int = 1) -> None:
    """Draw an antialiased line between two points (x, y) with sub-sample precision."""
    a, b = np.round(np.array([start, end]) * 16).astype(int).tolist()
    cv2.line(mask, a, b, value, thickness, cv2.LINE_AA, 4)


def _paint_skin(rng: np.random.Generator, person: SyntheticPerson, x: Image, y: Image) -> Image:
    """Paint a face at the points x and y, each (h, w) in mm, and return its RGB colours (h, w, 3)."""
    colour = _bare_skin(rng, person, x, y)
    colour = _mouth(person, x, y, colour)
    colour = _beard(rng, person, x, y, colour)
    colour = _hair(rng, person, x, y, colour)
    cover = _brows(rng, person, x, y) * (0.6 + 0.4 * person.brow_weight)
    colour += cover[..., None] * (0.85 * person.hair - colour)
    return np.clip(colour, 0.01, 1.2).astype(np.float32)


def _bare_skin(rng: np.random.Generator, person: SyntheticPerson, x: Image, y: Image) -> NDArray:
    side = np.abs(x)
    eye_x, eye_y = person.eye_centres_mm[1, :2]
    spots = (0.02, 24), (0.02, 6), (0.018, 1)  # strength, size in mm
    mottle = sum(strength * smooth_noise(rng, x.shape, size * _COLOUR_PER_MM) for strength, size in spots)
    red = 0.05 * bump(side, y, (42, 36), (18, 14)) + 0.06 * bump(x, y, (0, 44), (12, 10))
    red += rng.uniform(0.01, 0.06) * bump(side, y, (eye_x, eye_y), (17, 11))
    rings = rng.uniform(0.02, 0.16) * bump(side, y, (eye_x - 5, eye_y + 11), (13, 6))
    hollow = rng.uniform(0.06, 0.16) * bump(side, y, (person.inner_half_mm - 1, -3), (6, 9))
    colour = person.skin * (1 + mottle - rings - hollow)[..., None]
    return colour * (1 + red[..., None] * np.array([0.6, -1.0, -0.8]))


def _mouth(person: SyntheticPerson, x: Image, y: Image, colour: NDArray) -> NDArray:
    half, height = person.mouth_mm[1, :2]
    bow = y + 0.006 * x * x  # the corners curve up
    lips = step(1 - (x / half) ** 2 - ((bow - height) / 7.5) ** 2, 0.25)
    colour = colour + 0.6 * lips[..., None] * (np.array([0.66, 0.36, 0.34]) * person.skin.mean() * 1.25 - colour)
    seam = np.exp(-(((bow - height + 0.6) / 0.9) ** 2)) * step(half - np.abs(x), 2.0)
    nostrils = bump(np.abs(x), y, (7.0, 53.0), (2.6, 1.6))
    return colour * (1 - 0.55 * seam)[..., None] * (1 - 0.6 * nostrils)[..., None]


def _beard(rng: np.random.Generator, person: SyntheticPerson, x: Image, y: Image, colour: NDArray) -> NDArray:
    density = rng.uniform(0.1, 0.5) * (rng.random() < 0.4)
    jaw = step(y - 58 - 0.004 * x * x, 18) * (1 - 0.7 * bump(x, y, (0, person.mouth_mm[0, 1]), (22, 10)))
    jaw = np.maximum(jaw, 0.9 * bump(x, y, (0, person.mouth_mm[0, 1] - 11), (20, 4)))
    grain = 0.8 + 0.25 * smooth_noise(rng, x.shape, 2)
    return colour + (density * np.clip(jaw * grain, 0, 1))[..., None] * (person.hair - colour)


def _hair(rng: np.random.Generator, person: SyntheticPerson, x: Image, y: Image, colour: NDArray) -> NDArray:
    side = np.abs(x)
    wave = smooth_noise(rng, x.shape, 8 * _COLOUR_PER_MM)
    hairline = rng.uniform(-70, -56) + rng.normal(0, 4) * np.cos(x / 17) + 0.004 * x * x + 1.5 * wave
    temple = rng.uniform(61, 67) + 0.10 * y + 1.5 * wave
    cover = np.maximum(step(hairline - y, 5.0), step(side - temple, 3.0) * step(30 - y, 24.0))
    coarse = rng.standard_normal((8, x.shape[1] // 2), np.float32)
    strands = cv2.resize(coarse, x.shape[::-1], interpolation=cv2.INTER_LINEAR)
    return colour + cover[..., None] * (person.hair * (0.85 + 0.3 * np.abs(strands))[..., None] - colour)


def _brows(rng: np.random.Generator, person: SyntheticPerson, x: Image, y: Image) -> Image:
    """Draw both brows hair by hair, and return their opacity (h, w)."""
    fine = _BROW_FINENESS * _COLOUR_PER_MM
    mask = np.zeros((x.shape[0] * _BROW_FINENESS, x.shape[1] * _BROW_FINENESS), np.uint8)
    arch, thickness, drop = rng.uniform(1.5, 4.5), rng.uniform(2.2, 4.0), rng.uniform(-1.0, 3.0)
    hairs = int(150 + 380 * person.brow_weight)
    corner = np.array([x[0, 0], y[0, 0]])
    for centre in person.eye_centres_mm:
        side = np.sign(centre[0])
        along = rng.uniform(-1, 1, hairs)
        across = thickness * rng.normal(0, 0.5, hairs) * np.where(along > 0.3, 1.3 - along, 1.0)
        height = centre[1] - person.brow_height_mm + arch * (along - 0.25) ** 2 - 0.4 * arch + drop * along + across
        start = np.stack([centre[0] + side * (17.5 * along - 0.5), height], axis=1)
        aside = side * rng.uniform(2.5, 5.5, hairs)
        lean = np.stack([aside, rng.normal(-1.6, 1.0, hairs) + 2.6 * (along + 0.3)], axis=1)
        for a, b in zip((start - corner) * fine, (start + lean - corner) * fine, strict=True):
            draw_line(mask, a, b, 255)
    cover = cv2.resize(mask, x.shape[::-1], interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    return np.clip(0.55 * cv2.GaussianBlur(cover, (0, 0), 2.0) + 0.9 * cover, 0, 0.92)


def build_face(rng: np.random.Generator, person: SyntheticPerson) -> tuple[Map, Map, Map]:
    """Return maps of a face's displacement (mm, positive into the head), outward unit normals and RGB colours."""
    x, y = _points(_SHAPE_PER_MM)
    square = 1 - ((x - CENTRE_MM[0]) / AXES_MM[0]) ** 2 - ((y - CENTRE_MM[1]) / AXES_MM[1]) ** 2
    base = CENTRE_MM[2] - AXES_MM[2] * np.sqrt(np.maximum(square, 0.03))  # the ellipsoid
    depth = _lids(person, x, y, base + _features(person, x, y))
    depth = _through_corners(person, x, y, depth)
    gradient_y, gradient_x = np.gradient(depth, 1 / _SHAPE_PER_MM)
    normal = np.stack([gradient_x, gradient_y, -np.ones_like(depth)], axis=-1)
    normal /= np.linalg.norm(normal, axis=-1, keepdims=True)
    colour = _paint_skin(rng, person, *_points(_COLOUR_PER_MM))
    shape = _LEFT, _TOP, _SHAPE_PER_MM, _SHAPE_PER_MM
    painted = _LEFT, _TOP, _COLOUR_PER_MM, _COLOUR_PER_MM
    return ((depth - base).astype(np.float32), shape), (normal.astype(np.float32), shape), (colour, painted)


def _points(per_mm: int) -> tuple[Image, Image]:
    y, x = np.mgrid[_TOP : _BOTTOM : 1 / per_mm, _LEFT : _RIGHT : 1 / per_mm].astype(np.float32)
    return x, y


def _features(person: SyntheticPerson, x: Image, y: Image) -> Image:
    """Compute the displacement of the face without lids, in mm; negative values protrude."""
    side = np.abs(x)
    eye_x, eye_y = person.eye_centres_mm[1, :2]
    mouth_y = person.mouth_mm[0, 1]
    nose = np.clip((y + 4) / 48, 0, 1)
    width = 5.0 + 6.5 * nose
    height = -(1.0 + 21.0 * nose**1.3) * np.exp(-((x / width) ** 2)) * step(54 - y, 3.0) * step(y + 16, 8.0)
    lips = 3.5 * bump(x, y, (0.0, mouth_y - 4), (24.0, 5.0)) + 3.5 * bump(x, y, (0.0, mouth_y + 6), (22.0, 5.0))
    hills = [
        -7.0 * bump(side, y, (12.5, 46.0), (5.0, 5.0)),  # wings of the nose
        8.5 * bump(side, y, (person.inner_half_mm - 1.0, 0.0), (9.0, 11.0)),  # a hollow at the inner corners
        3.0 * bump(side, y, (eye_x, eye_y - 11.0), (15.0, 5.5)),  # between lid and brow
        -2.5 * bump(side, y, (eye_x - 2, eye_y - person.brow_height_mm), (19.0, 6.0)),
        2.0 * bump(side, y, (eye_x - 6, eye_y + 17.0), (15.0, 7.0)),  # under the eye
        -4.0 * bump(side, y, (41.0, 38.0), (18.0, 18.0)),  # cheeks
        -lips,
        -5.0 * bump(x, y, (0.0, 103.0), (18.0, 14.0)),  # chin
    ]
    for hill in hills:  # in place, which keeps single precision; a sum would be double
        height += hill
    return height


def _lids(person: SyntheticPerson, x: Image, y: Image, depth: Image) -> Image:
    """Raise the face over each eyeball into a sphere, and continue it as a cone where a sphere would be too steep."""
    radius = person.eyeball_mm + _LID_MM
    edge = radius * _LID_SLOPE / np.hypot(1, _LID_SLOPE)  # where the sphere is as steep as the cone
    for centre in person.eye_centres_mm:
        off = np.hypot(x - centre[0], y - centre[1])
        sphere = np.sqrt(radius**2 - np.minimum(off, edge) ** 2)
        cone = _LID_SLOPE * np.maximum(off - edge, 0) + 0.15 * np.maximum(off - 16, 0) ** 2  # the cone soon ends
        lid = centre[2] - sphere + cone
        blend = np.clip(0.5 + 0.5 * (depth - lid) / _SOFT_MM, 0, 1)
        depth = depth * (1 - blend) + lid * blend - _SOFT_MM * blend * (1 - blend)
    return depth


def _through_corners(person: SyntheticPerson, x: Image, y: Image, depth: Image) -> Image:
    """Move the surface so that it passes through the eye corners, as the annotation assumes."""
    inner, outer = person.corners_mm[2:]
    hills = [bump(np.abs(x), y, (corner[0], corner[1]), (9.0, 9.0)) for corner in (inner, outer)]
    places = [(corner[:2] - [_LEFT, _TOP]) * _SHAPE_PER_MM for corner in (inner, outer)]
    nodes = [(round(row), round(column)) for column, row in places]
    heights = np.array([[hill[node] for hill in hills] for node in nodes])
    missing = np.array([corner[2] - depth[node] for corner, node in zip((inner, outer), nodes, strict=True)])
    weights = np.linalg.solve(heights, missing)
    return depth + weights[0] * hills[0] + weights[1] * hills[1]


_IRIS_HALF_MM, _IRIS_PER_MM = 6.6, 10
_LASH_ABOVE_MM, _LASH_BELOW_MM, _LASH_PER_MM, _LASH_WIDTH = 5.0, 1.0, 16, 384


def paint_iris(rng: np.random.Generator, person: SyntheticPerson) -> Map:
    """Paint the iris around the optical axis, without the pupil."""
    samples = np.arange(-_IRIS_HALF_MM, _IRIS_HALF_MM + 1e-6, 1 / _IRIS_PER_MM)
    x, y = np.meshgrid(samples, samples)
    radius, angle = np.hypot(x, y) / person.iris_mm, np.arctan2(y, x)
    fibres = np.zeros_like(radius)
    for waves in rng.integers(9, 70, 14):
        fibres += np.cos(waves * angle + rng.uniform(0, 6.3) + rng.uniform(-3, 3) * radius) / np.sqrt(14)
    tone = 1.0 + 0.16 * fibres + 0.3 * np.exp(-(((radius - 0.45) / 0.14) ** 2))
    rim = rng.uniform(0.45, 0.75) * np.clip((radius - 0.72) / 0.28, 0, 1) ** 2
    warm = np.exp(-(((radius - 0.42) / 0.16) ** 2))[..., None] * np.array([0.10, 0.05, -0.02]) * rng.uniform(0, 1)
    iris = person.iris * (tone * (1 - rim))[..., None] + warm * person.iris.mean()
    place = -_IRIS_HALF_MM, -_IRIS_HALF_MM, _IRIS_PER_MM, _IRIS_PER_MM
    return np.clip(iris, 0.01, 1).astype(np.float32), place


def draw_lashes(rng: np.random.Generator, strength: float) -> Map:
    """Draw the opacity of one eye's upper lashes; x is a fraction of the lid's width, y is mm below the margin."""
    mask = np.zeros((int((_LASH_ABOVE_MM + _LASH_BELOW_MM) * _LASH_PER_MM), int(1.2 * _LASH_WIDTH)), np.uint8)
    for root in np.sort(rng.uniform(0.06, 0.99, int(40 + 45 * strength))):
        length = rng.uniform(1.2, 2.4) * (0.6 + 0.7 * root) * (0.7 + 0.5 * strength)
        tip = root + (root - 0.35) * 0.10 + rng.normal(0, 0.012)
        ends = np.array([[root, _LASH_ABOVE_MM], [tip, _LASH_ABOVE_MM - length]]) * [_LASH_WIDTH, _LASH_PER_MM]
        draw_line(mask, ends[0], ends[1], int(80 + 110 * strength), 2)
    opacity = cv2.GaussianBlur(mask, (0, 0), 1.5).astype(np.float32) / 255
    return np.pad(opacity, 1), (0.0, -_LASH_ABOVE_MM, _LASH_WIDTH, _LASH_PER_MM)


def place_lids(person: SyntheticPerson, eye: int, optical: NDArray, aperture: float) -> dict[str, float]:
    """Place the lids of eye 0 or 1, which partially follow its optical axis (3,); the normal aperture is 1.

    Heights are relative to the line between the corners; `per_mm` converts mm of x to fractions of the opening's width.
    """
    centre = person.eye_centres_mm[eye]
    side = np.sign(centre[0])
    inner, outer = abs(centre[0]) - person.inner_half_mm, person.outer_half_mm - abs(centre[0])
    travel = person.eyeball_mm * optical[1]
    upper = max((person.upper_lids_mm[eye] - person.upper_lid_follow * travel) * aperture, 1.0)
    return {
        "per_mm": side / (inner + outer),
        "inner_mm": centre[0] - side * inner,
        "tilt_mm": person.tilt_mm,
        "upper_mm": upper,
        "lower_mm": max((person.lower_lids_mm[eye] + person.lower_lid_follow * travel) * (0.5 + 0.5 * aperture), 1.2),
        "fold_mm": max(person.upper_lids_mm[eye] + person.crease_mm - 0.25 * travel, upper + 1.2),
    }
