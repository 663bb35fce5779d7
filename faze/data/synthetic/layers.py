"""The layers of a frame: camera, light and eyes in the head frame, and their pixels, which kernel.c computes."""

import ctypes
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.synthetic import eyes, surface
from faze.data.synthetic.eyes import Eyeball, Margins
from faze.data.synthetic.person import BRIDGE_MM, EDGE_MM, FRONT_RADIUS_MM, TILT, SyntheticPerson
from faze.data.synthetic.setting import Camera
from faze.data.synthetic.surface import Face
from faze.data.synthetic.texture import Image, Light
from faze.native.compiled import library

_HEAD_MM = ((-80.0, -105.0, 0.0), (80.0, 145.0, 90.0))  # two corners of a box in the head frame
_BAND_MM = ((-66.0, -34.0, 0.0), (66.0, 30.0, 0.0))
_EYE_MM = np.array([[-17.0, -13.0, 0.0], [17.0, 11.0, 0.0]])  # around an eyeball
FEATHER_PX = 5

Box = tuple[int, int, int, int]  # left, top, width, height, px


@dataclass(frozen=True, eq=False)
class Shot:
    """One frame: camera, light and eyes."""

    camera: Camera
    rotation: NDArray  # (3, 3) head -> camera
    origin_mm: NDArray  # (3,) of the head in the camera frame
    light: Light  # in the head frame
    exposure: np.float32  # grey level of white
    optical: NDArray  # (2, 3) optical axes in the head frame
    aperture: float  # opening of the lids, 1 = usual
    pupil_mm: float

    @property
    def viewpoint_mm(self) -> NDArray:
        """Return the position (3,) of the camera in the head frame."""
        return -self.rotation.T @ self.origin_mm

    def eyes(self, person: SyntheticPerson) -> list[tuple[Eyeball, Margins]]:
        """Place each eyeball and its lids."""
        return [
            (Eyeball(centre, axis, self.pupil_mm), eyes.margins(person, eye, axis, self.aperture))
            for eye, (centre, axis) in enumerate(zip(person.eye_centres_mm, self.optical, strict=True))
        ]

    def boxes(self, person: SyntheticPerson) -> tuple[Box, Box, list[Box]]:
        """Find the boxes of pixels around the head, around the band across the eyes, and around each eye."""
        around = [_EYE_MM + centre * [1, 1, 0] for centre in person.eye_centres_mm]
        low, high = np.moveaxis(np.array([_HEAD_MM, _BAND_MM, *around])[:, :, None], 1, 0)  # (4, 1, 3) each
        points = np.where(_CORNERS, high, low)  # (4, 8, 3)
        pixels = self.camera.project(points @ self.rotation.T + self.origin_mm)
        size = np.array([self.camera.width_px, self.camera.height_px])
        first = np.clip(np.floor(pixels.min(axis=1)), 0, size - 2).astype(int)
        last = np.clip(np.ceil(pixels.max(axis=1)) + 1, first + 2, size).astype(int)
        sides = (last - first) // 2 * 2  # even, for half resolution
        head, band, *found = (tuple(box) for box in np.concatenate([first, sides], axis=1).tolist())
        return head, band, found


_CORNERS = np.array([[x, y, z] for x in (False, True) for y in (False, True) for z in (False, True)])


def within(box: Box, outer: Box) -> Box:
    """Return the intersection of a box with an outer one: left, top, width, height, relative to the outer one."""
    left, top = max(box[0] - outer[0], 0), max(box[1] - outer[1], 0)
    right, bottom = box[0] + box[2] - outer[0], box[1] + box[3] - outer[1]
    return left, top, max(min(right, outer[2]) - left, 0), max(min(bottom, outer[3]) - top, 0)


def feather(width: int, height: int) -> Image:
    """Compute weights (height, width) that fall to 0 at the edges."""
    ramps = [np.minimum(np.arange(n) + 0.5, n - 0.5 - np.arange(n)) / FEATHER_PX for n in (width, height)]
    across, down = (np.clip(ramp, 0, 1).astype(np.float32) for ramp in ramps)
    return down[:, None] * across


@dataclass(frozen=True, eq=False)
class Painted:
    """The parts that are painted once per person."""

    face: Face
    iris: Image  # (n, n, 4)
    lashes: list[Image]  # one map for each eye


# (h, w, 3) levels, and (h, w) float32: 1 where rays meet the head, else 0.
Layer = tuple[NDArray[np.uint8], Image]


def _record(name: str, **fields: object) -> type[ctypes.Structure]:
    """Define a struct of kernel.c; a number n as a field's type means n floats."""
    kinds = {field: ctypes.c_float * kind if isinstance(kind, int) else kind for field, kind in fields.items()}
    return type(name, (ctypes.Structure,), {"_fields_": list(kinds.items())})


_Map = _record("_Map", data=ctypes.c_void_p, rows=ctypes.c_int32, columns=ctypes.c_int32)
_CONSTANTS = {
    "per_axis": 1 / surface.AXES_MM,
    "axis_z": surface.AXES_MM[2],
    "left": surface.LEFT,
    "top": surface.TOP,
    "shape_per_mm": surface.SHAPE_PER_MM,
    "colour_per_mm": surface.COLOUR_PER_MM,
    "cornea_radius_mm": eyes.CORNEA_RADIUS_MM,
    "iris_half_mm": eyes.IRIS_HALF_MM,
    "iris_per_mm": eyes.IRIS_PER_MM,
    "lash_above_mm": eyes.LASH_ABOVE_MM,
    "lash_per_mm": eyes.LASH_PER_MM,
    "lash_width": eyes.LASH_WIDTH,
    "front_radius_mm": FRONT_RADIUS_MM,
    "tilt": TILT,
    "lens_edge_mm": EDGE_MM,
    "bridge_above_mm": BRIDGE_MM[0],
    "bridge_half_mm": BRIDGE_MM[1],
}
_COUNTS = {"rounds": ctypes.c_int32, "feather_px": ctypes.c_int32}
_Constants = _record("_Constants", **{name: np.size(value) for name, value in _CONSTANTS.items()}, **_COUNTS)
_MAPS = {"displacement": _Map, "normal": _Map, "colour": _Map, "iris": _Map, "lashes": _Map * 2}
_COLOURS = {"sclera": 3, "caruncle": 3, "pink": 3, "ink": 3, "lashes_cover": 1}
_Person = _record("_Person", **_MAPS, eyeball_mm=1, iris_mm=1, **_COLOURS)
_LIGHT = {"key": 3, "screen": 3, "key_rgb": 3, "screen_rgb": 3, "ambient_rgb": 3, "mirrored": 2 * 5}
_View = _record(
    "_View", lens=ctypes.c_double * 9, rotation=9, origin=3, start=3, **_LIGHT, exposure=1, constants=_Constants
)
_BALL = {
    "start": 3,
    "power": 1,
    "cornea": 3,
    "cornea_power": 1,
    "axis": 3,
    "right": 3,
    "down": 3,
    "pupil_mm": 1,
    "margins": len(Margins._fields),
}
_Eye = _record("_Eye", **_BALL, side=ctypes.c_int32, part=ctypes.c_int32 * 4)
_PLANE = {"plane": 1, "behind": 1, "middle": 1, "centre": 4, "per_half": 2, "half": 1, "bends": 2}
_Spectacles = _record("_Spectacles", **_PLANE, rim_mm=1, reflectance=1, metal=3, glow=1)


class Layers:
    """Layers of one person's frames."""

    def __init__(self, person: SyntheticPerson, painted: Painted) -> None:
        self._code, self._person = load_kernel(), person
        face = painted.face
        lashes = [np.pad(mask, 1) for mask in painted.lashes]  # none beyond the edge
        self._maps = [np.ascontiguousarray(m) for m in (face.displacement, face.normal, face.colour, painted.iris)]
        self._maps += [np.ascontiguousarray(mask) for mask in lashes]
        displacement, normal, colour, iris, *lash_maps = (_Map(m.ctypes.data, *m.shape[:2]) for m in self._maps)
        self._record = _fill(
            _Person(displacement, normal, colour, iris, (_Map * 2)(*lash_maps)),
            eyeball_mm=person.eyeball_mm,
            iris_mm=person.iris_mm,
            sclera=person.sclera,
            caruncle=eyes.caruncle(person),
            pink=eyes.wet_rim(person),
            ink=eyes.ink(person),
            lashes_cover=eyes.lashes_cover(person),
        )

    def paint(self, shot: Shot, head: Box, band: Box, of_eyes: list[Box]) -> tuple[Layer, Layer]:
        """Paint the face at half resolution, and its band with eyes and spectacles at full resolution."""
        view = _view(shot)
        placed = [_eye(shot, self._person, side, within(eye, band)) for side, eye in enumerate(of_eyes)]
        return self._paint(view, head, 0.5, [], None), self._paint(view, band, 1.0, placed, self._spectacles(shot))

    def blend(self, frame: NDArray[np.uint8], box: Box, levels: NDArray[np.uint8], cover: Image) -> None:
        """Blend levels (h, w, 3) into a box in a frame; the opacity (h, w) is clipped to 0..1."""
        left, top, width, height = box
        assert levels.shape == (height, width, 3) and cover.shape == (height, width) and cover.dtype == np.float32
        assert all(array.flags.c_contiguous for array in (frame, levels, cover))
        assert left + width <= frame.shape[1] and top + height <= frame.shape[0]
        at = ctypes.c_void_p(frame.ctypes.data + 3 * (top * frame.shape[1] + left))
        stride = ctypes.c_int64(3 * frame.shape[1])
        self._code.blend(at, stride, _pointer(levels), _pointer(cover), width, height)

    def add_noise(self, frame: NDArray[np.uint8], noise: NDArray[np.uint8]) -> None:
        """Add noise (H, W, 3), which is centred on 128, to a frame."""
        assert frame.flags.c_contiguous and noise.shape == frame.shape and noise.strides[1:] == (3, 1)
        stride = ctypes.c_int64(noise.strides[0])
        self._code.add_noise(_pointer(frame), _pointer(noise), stride, 3 * frame.shape[1], frame.shape[0])

    def _paint(
        self, view: ctypes.Structure, box: Box, scale: float, placed: list, worn: ctypes.Structure | None
    ) -> Layer:
        width, height = (round(side * scale) for side in box[2:])
        levels, inside = np.empty((height, width, 3), np.uint8), np.empty((height, width), np.float32)
        failed = self._code.paint(
            ctypes.byref(view),
            ctypes.byref(self._record),
            (ctypes.c_int32 * 4)(*box),
            ctypes.c_double(scale),
            (_Eye * len(placed))(*placed),
            len(placed),
            ctypes.byref(worn) if worn else None,
            _pointer(levels),
            _pointer(inside),
        )
        if failed:
            raise MemoryError(f"out of memory for {width} x {height} samples")
        return levels, inside

    def _spectacles(self, shot: Shot) -> ctypes.Structure | None:
        worn = self._person.spectacles
        if worn is None:
            return None
        return _fill(
            _Spectacles(),
            plane=worn.plane_mm - shot.viewpoint_mm[2],
            behind=worn.plane_mm + worn.behind_mm - shot.viewpoint_mm[2],
            middle=worn.centre_mm[:, 0].mean(),
            centre=worn.centre_mm.ravel(),
            per_half=1 / np.array(worn.half_mm, np.float32),
            half=min(worn.half_mm),
            bends=worn.bends(),
            rim_mm=worn.rim_mm,
            reflectance=worn.reflectance,
            metal=worn.metal(shot.light),
            glow=worn.glow(shot.light),
        )


def load_kernel() -> ctypes.CDLL:
    """Load kernel.c, compiled.

    Raises:
        UserError: It was not compiled when faze was installed.
    """
    code = library("data/synthetic/kernel.c")
    if code is None:
        raise UserError(
            "faze/data/synthetic/kernel.c, which renders people, is not compiled: install a C compiler (gcc or clang) "
            "and reinstall faze (make, or pip install --no-build-isolation --editable .)"
        )
    return code


def _view(shot: Shot) -> ctypes.Structure:
    light, lens = shot.light, [*shot.camera.parameters, *shot.camera.distortion]
    constants = _fill(_Constants(rounds=surface.ROUNDS, feather_px=FEATHER_PX), **_CONSTANTS)
    return _fill(
        _View(
            (ctypes.c_double * 9)(*lens),
            constants=constants,
        ),
        rotation=shot.rotation.ravel(),
        origin=shot.viewpoint_mm,
        start=(shot.viewpoint_mm - surface.CENTRE_MM) / surface.AXES_MM,
        **{name: getattr(light, name) for name in ("key", "screen", "key_rgb", "screen_rgb", "ambient_rgb")},
        mirrored=[number for towards, *rest in light.mirrored for number in (*towards, *rest)],
        exposure=shot.exposure,
    )


def _eye(shot: Shot, person: SyntheticPerson, side: int, part: Box) -> ctypes.Structure:
    ball, lids_at = shot.eyes(person)[side]
    start, axis = (shot.viewpoint_mm - ball.centre_mm).astype(np.float32), ball.optical.astype(np.float32)
    cornea = eyes.from_cornea(start, axis)
    right, down = eyes.iris_plane(axis)
    return _fill(
        _Eye(side=side, part=part),
        start=start,
        power=eyes.power(start, person.eyeball_mm),
        cornea=cornea,
        cornea_power=eyes.power(cornea, eyes.CORNEA_RADIUS_MM),
        axis=axis,
        right=right,
        down=down,
        pupil_mm=ball.pupil_mm,
        margins=lids_at,
    )


def _fill(record: ctypes.Structure, **numbers: object) -> ctypes.Structure:
    """Write floats to the fields of a struct."""
    for field, values in numbers.items():
        getattr(record, field)[:] = np.ravel(values).tolist()
    return record


def _pointer(array: NDArray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
