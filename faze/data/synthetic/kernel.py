"""The layers of a frame, painted by kernel.c: the head, and the band across the eyes, including any spectacles."""

import ctypes
import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.synthetic.face import AXES_MM, CENTRE_MM, Image, build_face, draw_lashes, paint_iris, place_lids
from faze.data.synthetic.person import Spectacles, SyntheticPerson
from faze.data.synthetic.setting import Camera
from faze.native.compiled import library

_PLANES = 11  # per row of samples in kernel.c
_CORNEA_RADIUS_MM = 7.8
# Boxes (two corners, mm) around the head, the band across the eyes, and an eyeball.
_HEAD_MM = ((-80.0, -105.0, 0.0), (80.0, 145.0, 90.0))
_BAND_MM = ((-66.0, -34.0, 0.0), (66.0, 30.0, 0.0))
_EYE_MM = np.array([[-17.0, -13.0, 0.0], [17.0, 11.0, 0.0]])
Box = tuple[int, int, int, int]  # left, top, width, height, px
Layer = tuple[Box, NDArray[np.uint8], Image]  # levels (h, w, 3), and a mask (h, w): 1 on the head, else 0


@dataclass(frozen=True, eq=False)
class Light:
    """A key light, the screen's glow and ambient light, all in one frame of reference (camera or head)."""

    key: NDArray  # (3,) unit vector toward the key light
    screen: NDArray  # (3,) unit vector toward the screen
    key_rgb: NDArray
    screen_rgb: NDArray
    ambient_rgb: NDArray


@dataclass(frozen=True, eq=False)
class Shot:
    """The camera, head pose, light and eyes in one frame."""

    camera: Camera
    rotation: NDArray  # (3, 3) head -> camera
    origin_mm: NDArray  # (3,) of the head in the camera frame
    light: Light  # in the head frame
    exposure: float  # grey level of white
    optical: NDArray  # (2, 3) optical axes in the head frame
    aperture: float  # opening of the lids, 1 = usual
    pupil_mm: float  # radius

    def boxes(self, person: SyntheticPerson) -> tuple[Box, Box, NDArray[np.int32]]:
        """Return boxes around the head, around the band across the eyes and, relative to the band, around each eye."""
        around = [_EYE_MM + centre * [1, 1, 0] for centre in person.eye_centres_mm]
        corners = [list(itertools.product(*np.transpose(box))) for box in (_HEAD_MM, _BAND_MM, *around)]  # (4, 8, 3)
        pixels = self.camera.project(np.array(corners) @ self.rotation.T + self.origin_mm)
        size = np.array([self.camera.width_px, self.camera.height_px])
        first = np.clip(np.floor(pixels.min(axis=1)), 0, size - 2).astype(int)
        last = np.clip(np.ceil(pixels.max(axis=1)) + 1, first + 2, size).astype(int)
        last = first + (last - first) // 2 * 2  # even sides, for half resolution
        head, band = (tuple(box) for box in np.concatenate([first, last - first], axis=1)[:2].tolist())
        starts, ends = (np.clip(corners[2:], first[1], last[1]) - first[1] for corners in (first, last))
        return head, band, np.concatenate([starts, ends - starts], axis=1).astype(np.int32)


def load_kernel() -> ctypes.CDLL:
    """Load the compiled kernel.c; raise a UserError if it was not compiled when faze was installed."""
    code = library("data/synthetic/kernel.c")
    if code is None:
        raise UserError(
            "faze/data/synthetic/kernel.c, which renders people, is not compiled: install a C compiler (gcc or clang) "
            "and reinstall faze (make, or pip install --no-build-isolation --editable .)"
        )
    return code


_MAP = np.dtype([("data", np.uintp), ("shape", np.int32, 2), ("place", np.float32, 4)])


def _floats(**fields: object) -> NDArray[np.float32]:
    """Pack the fields, in the given order, as a struct of kernel.c that contains only floats."""
    return np.concatenate([np.ravel(values) for values in fields.values()]).astype(np.float32)


class Painter:
    """A painter of one person's face, eyes and spectacles that computes the person's maps only once."""

    def __init__(self, rng: np.random.Generator, person: SyntheticPerson) -> None:
        self._code, self._person = load_kernel(), person
        maps = [*build_face(rng, person), paint_iris(rng, person)]
        maps += [draw_lashes(rng, person.lashes) for _ in range(2)]
        # The kernel reads these samples, and loads four channels at once, so maps with three channels are padded.
        padding = (0, 0), (0, 0), (0, 1)
        self._samples = [np.pad(samples, padding) if samples.ndim == 3 else samples for samples, _ in maps]
        records = [(s.ctypes.data, s.shape[:2], place) for s, (_, place) in zip(self._samples, maps, strict=True)]
        self._maps = np.array(records, _MAP)
        tone = person.skin.mean()
        self._record = _floats(
            axes=AXES_MM,
            eyeball_mm=person.eyeball_mm,
            iris_mm=person.iris_mm,
            cornea_mm=_CORNEA_RADIUS_MM,
            sclera=person.sclera,
            caruncle=1.3 * tone * np.array([0.80, 0.50, 0.46]),  # the flesh in the eye's inner corner
            wet_rim=tone * np.array([0.10, 0.01, 0.01]),  # added by the lower lid's wet rim
            ink=0.35 * person.hair,
            lashes_cover=0.5 + 0.5 * person.lashes,
        )

    def paint(self, shot: Shot) -> tuple[Layer, Layer]:
        """Paint the head at half resolution, and the band with eyes and spectacles at full resolution."""
        camera_mm = -shot.rotation.T @ shot.origin_mm
        view, (head, band, eye_boxes) = _view(shot, camera_mm), shot.boxes(self._person)
        eyes = np.stack([self._eye(shot, side, camera_mm) for side in (0, 1)])
        worn = self._person.spectacles
        glasses = None if worn is None else _spectacles(worn, shot.light, camera_mm[2])
        return self._paint(shot, view, head, 2), self._paint(shot, view, band, 1, eyes, eye_boxes, glasses)

    def _paint(self, shot: Shot, view: NDArray, box: Box, px_per_sample: int, *parts: NDArray | None) -> Layer:
        width, height = (side // px_per_sample for side in box[2:])
        lens = np.concatenate([shot.camera.parameters, shot.camera.distortion])
        rows = np.empty((height, _PLANES, width), np.float32)
        levels, inside = np.empty((height, width, 3), np.uint8), np.empty((height, width), np.float32)
        eyes, eye_boxes, glasses = parts or (None, None, None)
        before = [lens, view, self._record, self._maps, np.array(box, np.int32)]
        after = [eyes, eye_boxes, glasses, rows, levels, inside]
        self._code.paint(*map(_pointer, before), width, height, *map(_pointer, after))
        return box, levels, inside

    def _eye(self, shot: Shot, side: int, camera_mm: NDArray) -> NDArray[np.float32]:
        start = (camera_mm - self._person.eye_centres_mm[side]).astype(np.float32)
        axis = shot.optical[side].astype(np.float32)
        cornea = start - np.float32(5.4) * axis  # from the centre of the cornea, 5.4 mm in front of the eyeball's
        right = np.cross(axis, np.array([0, 1, 0], np.float32))
        right /= np.linalg.norm(right)
        return _floats(
            start=start,
            power=start @ start - self._person.eyeball_mm**2,
            cornea=cornea,
            cornea_power=cornea @ cornea - _CORNEA_RADIUS_MM**2,
            axis=axis,
            right=right,
            down=np.cross(axis, right),
            pupil_mm=shot.pupil_mm,
            **place_lids(self._person, side, shot.optical[side], shot.aperture),
        )


def blend(region: NDArray[np.uint8], levels: NDArray[np.uint8], opacity: Image, feathered: bool) -> None:
    """Blend levels (h, w, 3) into a region (h, w, 3) of a frame, clipping the opacity (h, w) to 0..1."""
    height, width = opacity.shape
    row_bytes = ctypes.c_int64(region.strides[0])
    load_kernel().blend(_pointer(region), row_bytes, _pointer(levels), _pointer(opacity), width, height, feathered)


def _view(shot: Shot, camera_mm: NDArray) -> NDArray[np.float32]:
    light = shot.light
    return _floats(
        rotation=shot.rotation,
        camera=camera_mm,
        start=(camera_mm - CENTRE_MM) / AXES_MM,
        **vars(light),
        # Lights that the cornea reflects: direction, angular half-width on the cornea (rad), brightness.
        key_glint=[*light.key, 0.07, 1.8 * light.key_rgb.mean()],
        screen_glint=[*light.screen, 0.09, 0.5],
        exposure=shot.exposure,
    )


def _spectacles(worn: Spectacles, light: Light, camera_z_mm: float) -> NDArray[np.float32]:
    # Rims face the camera, and are lit like skin (meet_face).
    sources = np.array([light.key, light.screen], np.float32)
    cosines = np.maximum(np.float32(0.25) - sources[:, 2], 0)
    rgb = np.array([light.key_rgb, light.screen_rgb], np.float32) / np.float32(1.25)
    lit = cosines @ rgb + light.ambient_rgb.astype(np.float32)
    return _floats(
        plane=worn.plane_mm - camera_z_mm,
        behind=worn.plane_mm + worn.behind_mm - camera_z_mm,
        middle=worn.centre_mm[:, 0].mean(),
        centre=worn.centre_mm,
        per_half=1 / np.array(worn.half_mm, np.float32),
        half=min(worn.half_mm),
        bends=worn.power_dioptres * (worn.behind_mm / 1000),  # per mm off the centre, at the distance of the irises
        rim_mm=worn.rim_mm,
        reflectance=worn.reflectance,
        metal=worn.rim_rgb.astype(np.float32) * lit,
        glow=0.5 * light.ambient_rgb.mean(),
    )


def _pointer(array: NDArray | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)
