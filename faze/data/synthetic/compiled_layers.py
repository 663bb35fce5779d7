"""The layers of a frame, computed in kernel.c; they equal the numpy ones in `layers` to within one grey level."""

import ctypes
import hashlib
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.compiled import library, processor_features
from faze.data.synthetic import eyes, surface
from faze.data.synthetic.eyes import Margins
from faze.data.synthetic.layers import FEATHER_PX, Box, Layer, NumpyLayers, Painted, Shot, within
from faze.data.synthetic.person import BRIDGE_MM, EDGE_MM, FRONT_RADIUS_MM, TILT, SyntheticPerson
from faze.data.synthetic.texture import Image


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


class CompiledLayers:
    """The methods of layers.NumpyLayers, implemented in kernel.c."""

    def __init__(self, code: ctypes.CDLL, person: SyntheticPerson, painted: Painted) -> None:
        self._code, self._person = code, person
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

    def paint(self, shot: Shot, head: Box, band: Box, eyes: list[Box]) -> tuple[Layer, Layer]:
        """See NumpyLayers."""
        view = _view(shot)
        placed = [_eye(shot, self._person, side, within(eye, band)) for side, eye in enumerate(eyes)]
        return self._paint(view, head, 0.5, [], None), self._paint(view, band, 1.0, placed, self._spectacles(shot))

    def blend(self, frame: NDArray[np.uint8], box: Box, levels: NDArray[np.uint8], cover: Image) -> None:
        """See NumpyLayers."""
        left, top, width, height = box
        assert levels.shape == (height, width, 3) and cover.shape == (height, width) and cover.dtype == np.float32
        assert all(array.flags.c_contiguous for array in (frame, levels, cover))
        assert left + width <= frame.shape[1] and top + height <= frame.shape[0]
        at = ctypes.c_void_p(frame.ctypes.data + 3 * (top * frame.shape[1] + left))
        stride = ctypes.c_int64(3 * frame.shape[1])
        self._code.blend(at, stride, _pointer(levels), _pointer(cover), width, height)

    def add_noise(self, frame: NDArray[np.uint8], noise: NDArray[np.uint8]) -> None:
        """See NumpyLayers."""
        assert frame.flags.c_contiguous and noise.shape == frame.shape and noise.strides[1:] == (3, 1)
        stride = ctypes.c_int64(noise.strides[0])
        self._code.add_noise(_pointer(frame), _pointer(noise), stride, 3 * frame.shape[1], frame.shape[0])

    def _paint(
        self, view: ctypes.Structure, box: Box, scale: float, eyes: list, worn: ctypes.Structure | None
    ) -> Layer:
        width, height = (round(side * scale) for side in box[2:])
        levels, inside = np.empty((height, width, 3), np.uint8), np.empty((height, width), np.float32)
        failed = self._code.paint(
            ctypes.byref(view),
            ctypes.byref(self._record),
            (ctypes.c_int32 * 4)(*box),
            ctypes.c_double(scale),
            (_Eye * len(eyes))(*eyes),
            len(eyes),
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


def rounding_identity() -> tuple[str, ...]:
    """Identify everything that can change the rounding of pixels: compiled code or numpy, processor, versions."""
    code = _code()
    digest = hashlib.sha256(Path(code._name).read_bytes()).hexdigest()[:16] if code else "numpy"
    return digest, processor_features(), np.__version__, cv2.__version__


def layers_for(person: SyntheticPerson, painted: Painted) -> CompiledLayers | NumpyLayers:
    """Return compiled layers if available, otherwise numpy layers."""
    code = _code()
    return CompiledLayers(code, person, painted) if code else NumpyLayers(person, painted)


def _code() -> ctypes.CDLL | None:
    return library("data/synthetic/kernel.c", "people are rendered with numpy, several times more slowly")


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
