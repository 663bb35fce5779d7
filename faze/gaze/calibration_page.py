"""The page of `faze calibrate`: the browser shows dots and sends the camera's images; this server estimates the gaze.

Only programs on this machine can reach it. The token in the link works once; then the browser has a cookie.
"""

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import yaml
from flask import Flask, Response, request, send_file
from werkzeug.serving import make_server

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.geometry import angular_error
from faze.data.landmarks.detector import NO_FACE, FaceDetector
from faze.data.readers.manifest import read_manifest
from faze.data.readers.screen import Screen
from faze.evaluation.statistics import compare
from faze.evaluation.wording import signed
from faze.fewshot.interface import Learned
from faze.fewshot.learners import PersonalEstimator, calibrate
from faze.gaze.cross_validation import CONSTANT, check
from faze.gaze.estimator import FaceGaze, GazeEstimator
from faze.gaze.recording import read_recording
from faze.gaze.screen_fit import fit_screen, place
from faze.gaze.sources import Lens

PAGE = Path(__file__)
GRID, BETWEEN = (0.02, 0.5, 0.98), (0.25, 0.75)
# Shares of the screen's width and height: nine dots for the calibration, and four to measure its error.
DOTS = np.array([(x, y) for y in GRID for x in GRID] + [(x, y) for y in BETWEEN for x in BETWEEN])
SHOTS = len(GRID) ** 2
LEAST_LIGHT = 40  # mean level of the strip or, without a face, of the image


@dataclass(eq=False)
class Sitting:
    """A person in front of a camera."""

    estimator: GazeEstimator
    detect_two: FaceDetector  # finds a second person, but is slower than the estimator's detector
    learned: Learned
    network: str  # its name
    folder: Path  # of the images, frames.csv and screen.yaml
    out: Path  # of the calibration
    save: Callable[[PersonalEstimator, Path], None]
    setup: dict[str, Any] = field(default_factory=dict)  # screen, camera and network of the calibration that was begun
    screen: Screen | None = None  # of the calibration in use
    faces: dict[int, FaceGaze] = field(default_factory=dict)  # of the dots so far

    def use(self, person: PersonalEstimator) -> None:
        """Use a calibration; only this page's contain the screen and the field of view."""
        if "screen" not in person.setup:
            return
        self.screen = Screen.of(person.setup["screen"])
        self.estimator = replace(self.estimator, person=person, lens=Lens(hfov_deg=person.setup["hfov_deg"]))

    def face(self, jpeg: bytes, alone: bool, lens: Lens) -> FaceGaze:
        """Return the face in an image, or raise a UserError; with `alone`, also if there is a second face."""
        image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
        estimator = replace(self.estimator, detect=self.detect_two) if alone else self.estimator
        face, *others = estimator.faces(image, lens.of(image)) or [NO_FACE]
        if others:
            raise UserError("there are two faces: only one person may be in the picture")
        if (image if isinstance(face, str) else face.strip).mean() < LEAST_LIGHT:
            raise UserError("the picture is dark: turn on a light in front of you")
        if isinstance(face, str):
            raise UserError(face)
        return face

    def start(self, setup: dict[str, Any]) -> None:
        """Begin a calibration; `setup` has width_px, height_px, pixel_mm, camera, hfov_deg and the browser's tab."""
        self.setup, self.faces = setup | {"network": self.network}, {}

    def add(self, jpeg: bytes, dot: str, tab: str) -> None:
        """Add the sample of a dot."""
        if tab != self.setup["tab"]:
            raise UserError("the calibration was started in another tab: continue there, or start here again")
        self.faces[int(dot)] = self.face(jpeg, alone=True, lens=Lens(hfov_deg=self.setup["hfov_deg"]))
        (self.folder / f"{dot}.jpg").write_bytes(jpeg)

    def finish(self, _: None) -> dict[str, Any]:
        """Calibrate on nine dots, measure the error on the others, and save; or raise a UserError."""
        fit, frames = self.fit(), self.folder / "frames.csv"
        recording = read_recording(self.estimator, *read_manifest(frames, posed=False), frames)
        means_deg, lines, fault = check(recording, self.learned, SHOTS, span=(0, np.inf))  # the unit is known
        if fault:
            raise UserError("\n".join([fault, *lines]))
        is_held_out = np.array([int(Path(file).stem) >= SHOTS for file in recording.files])
        support, query = np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)
        found = calibrate(recording.person, support.tolist(), query, self.learned)
        setup = self.setup | fit | {"date": date.today().isoformat()}
        found = replace(found, checkpoint=self.estimator.network.hash, setup=setup)
        self.use(found)
        pairs = enumerate(DOTS * self.screen.size_px)
        dots = [self.look((self.folder / f"{dot}.jpg").read_bytes(), *dot_px) for dot, dot_px in pairs]
        self.save(found, self.out)
        guess = f"Error of always guessing the middle of the points: {means_deg[CONSTANT]:.1f}°."
        about = describe_errors(pd.DataFrame(dots)[SHOTS:]), guess, describe_fit(fit), f"Images: {self.folder}"
        return {"dots": dots, "report": "\n".join(about)}

    def fit(self) -> dict[str, Any]:
        """Fit the screen's position and the field of view, and write screen.yaml and frames.csv."""
        size_px = np.array([self.setup["width_px"], self.setup["height_px"]])
        faces, dots_px = [self.faces[dot] for dot in range(len(DOTS))], DOTS * size_px
        fitted = fit_screen(faces, dots_px, size_px, self.setup["pixel_mm"])
        unknowns = np.array([value for value, _ in fitted.values()])
        half = np.tan(np.radians(self.setup["hfov_deg"] / 2)) / np.exp(unknowns[5])
        hfov_deg = float(np.degrees(2 * np.arctan(half)))
        screen = place(unknowns, size_px, self.setup["pixel_mm"])
        (self.folder / "screen.yaml").write_text(yaml.safe_dump(screen))
        table = pd.DataFrame(dots_px, columns=["target_x_px", "target_y_px"])
        table = table.assign(image=[f"{dot}.jpg" for dot in table.index], person=self.out.stem, hfov_deg=hfov_deg)
        table.to_csv(self.folder / "frames.csv", index=False)
        return {"screen": screen, "hfov_deg": hfov_deg, "fitted": fitted}

    def look(self, jpeg: bytes, x: str = "nan", y: str = "nan", alone: str = "") -> dict[str, Any]:
        """Return where the person looks on the screen, raw and calibrated, and the errors if it is at (x, y) px."""
        face, target_px = self.face(jpeg, bool(alone), self.estimator.lens), np.array([x, y], float)
        found = {"distance_mm": np.linalg.norm(face.origin_mm), "expected_error_deg": face.expected_error_deg}
        raw = -face.rotation.T @ face.seen.gaze_hat[0]
        for name, direction in (("raw", raw), ("calibrated", face.direction)) if self.screen else ():
            point = self.screen.hit(face.origin_mm, direction)
            point = np.full(2, np.nan) if point is None else point
            toward_mm = self.screen.to_mm(target_px[None])[0] - face.origin_mm
            found[f"{name}_x_px"], found[f"{name}_y_px"] = point
            found[f"{name}_error_deg"] = np.degrees(angular_error(direction, toward_mm))
            found[f"{name}_error_cm"] = np.linalg.norm((point - target_px) * self.screen.pixel_mm) / 10
        return {name: None if np.isnan(value) else round(float(value), 2) for name, value in found.items()}

    def validate(self, rows: list[dict[str, Any]]) -> dict[str, str]:
        """Write the answers of `look` for dots that were shown for two seconds each, and describe the errors."""
        table, path = pd.DataFrame(rows), self.out.with_suffix(".validation.csv")
        if "raw_error_deg" not in table:
            raise UserError(f"the face was never seen well: {rows[-1]['problem']}")
        with whole_file(path) as temporary:
            table.to_csv(temporary, index=False)
        settled = table[table["time_s"] % 2 > 0.5].groupby(["target_x_px", "target_y_px"]).mean(numeric_only=True)
        return {"report": f"{describe_errors(settled.dropna(subset='raw_error_deg'))}\n{path}"}


def describe_errors(dots: pd.DataFrame) -> str:
    """Describe the errors on dots that were not used for the calibration."""
    names = [f"{name}_error_{unit}" for name in ("raw", "calibrated") for unit in ("deg", "cm")]
    errors = "{:.1f}° ({:.1f} cm) without and {:.1f}° ({:.1f} cm) with the calibration".format(*dots[names].mean())
    change = compare(dots["calibrated_error_deg"] - dots["raw_error_deg"], margin=1.0, alpha=0.025)
    low, high = signed(change["low_deg"], 1), signed(change["high_deg"], 1)
    return f"Error on {len(dots)} points: {errors} (95 % interval of the difference: {low} to {high}°)."


def describe_fit(fit: dict[str, Any]) -> str:
    """Describe the fitted values and their standard deviations."""
    hfov = fit["hfov_deg"], np.degrees(np.sin(np.radians(fit["hfov_deg"])) * fit["fitted"]["focal_log"][1])
    pairs = (*fit["fitted"].values(), hfov)
    right, above, _, tilt, turn, _, hfov = (f"{round(value)} ± {round(deviation)}" for value, deviation in pairs)
    camera = f"camera {above} mm above the screen and {right} mm to the right of its middle, field of view {hfov}°"
    return f"Fitted, but mostly as assumed: {camera}, screen tilted by {tilt}° and turned by {turn}°."


def create_app(sitting: Sitting, token: str) -> Flask:
    """Return the server's application, whose page opens once for the token."""
    app, lock = Flask(__name__), threading.Lock()  # the networks can be used by only one thread at a time
    cookie, unused = secrets.token_urlsafe(), {token}

    @app.before_request
    def admit() -> tuple[str, int] | None:
        if request.cookies.get("faze") == cookie:
            return None
        if request.path != "/" or request.args.get("token") not in unused:
            return "This link is incomplete, or was used before: run faze calibrate again.", 403
        unused.clear()
        return None

    @app.errorhandler(UserError)
    def explain(error: UserError) -> dict[str, Any]:
        return {"problem": str(error)}

    @app.get("/")
    def page() -> Response:
        response = send_file(PAGE.with_suffix(".html"))
        response.set_cookie("faze", cookie, httponly=True, samesite="Strict")
        return response

    @app.get("/page.js")
    def script() -> Response:
        return send_file(PAGE.with_suffix(".js"))

    @app.get("/calibration")
    def calibration() -> dict[str, Any]:
        person = sitting.estimator.person
        return person.setup | {"error_deg": person.error_deg} if person else {}

    @app.post("/<any(look, start, add, finish, validate):method>")
    def call(method: str) -> dict[str, Any]:
        with lock:
            body = request.json if request.is_json else request.data
            return getattr(sitting, method)(body, **request.args) or {}

    return app


def serve(sitting: Sitting) -> None:
    """Serve the page until Ctrl-C."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # no line for each image
    token = secrets.token_urlsafe()
    server = make_server("127.0.0.1", 0, create_app(sitting, token), threaded=True)
    print(f"open http://127.0.0.1:{server.server_port}/?token={token}\nPress Ctrl-C to stop.", flush=True)
    server.serve_forever()
