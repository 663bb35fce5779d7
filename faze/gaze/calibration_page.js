"use strict";

const CARD_MM = 85.6; // width of a bank card
const TURNS = { ArrowRight: 0, ArrowDown: 90, ArrowLeft: 180, ArrowUp: 270 }; // of the letter E, degrees
const grid = (shares) => shares.flatMap((y) => shares.map((x) => [x, y]));
const DOTS = [...grid([0.02, 0.5, 0.98]), ...grid([0.25, 0.75])]; // shares of the screen's width and height
const CHECKED = [9, 12]; // indices of the dots that show whether a calibration still holds
const TAB = crypto.randomUUID();
const CAMERA_PROBLEMS = {
  NotAllowedError: "The browser may not use the camera: allow it, and load this page again.",
  NotFoundError: "There is no camera: connect one, and load this page again.",
  NotReadableError: "Another program uses the camera: close it, and load this page again.",
};
const CHANGED = "Full screen was left, or the window changed: start again.";
const $ = (id) => document.getElementById(id);
const video = $("video");
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const cameraName = () => video.srcObject.getVideoTracks()[0].label;
const place = (dot, width = innerWidth, height = innerHeight) => [DOTS[dot][0] * width, DOTS[dot][1] * height];
let known = {}; // the calibration in use

/** Send JSON or an image; return the answer, or throw its problem. */
async function post(path, body) {
  const isImage = body instanceof Blob, headers = { "Content-Type": isImage ? "image/jpeg" : "application/json" };
  const response = await fetch(path, { method: "POST", headers, body: isImage ? body : JSON.stringify(body) }).catch(() => {
    throw Error("faze calibrate has ended: run it again in the terminal");
  });
  if (!response.ok) throw Error(await response.text());
  const answer = await response.json();
  if (answer.problem) throw Error(answer.problem);
  return answer;
}

async function openCamera(deviceId) {
  video.srcObject?.getTracks().forEach((track) => track.stop());
  const wanted = { width: { ideal: 1280 }, height: { ideal: 720 }, ...(deviceId && { deviceId: { exact: deviceId } }) };
  video.srcObject = await navigator.mediaDevices.getUserMedia({ video: wanted });
  await video.play();
}

function explain(error) {
  $("status").textContent = CAMERA_PROBLEMS[error.name] ?? String(error);
}

async function listCameras() {
  const cameras = (await navigator.mediaDevices.enumerateDevices()).filter((device) => device.kind === "videoinput");
  $("camera").replaceChildren(...cameras.map((device) => new Option(device.label, device.deviceId)));
}

/** Return the camera's next image as a JPEG. */
async function photo() {
  await new Promise((resolve) => video.requestVideoFrameCallback(resolve));
  const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight);
  canvas.getContext("2d").drawImage(video, 0, 0);
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.95 });
}

/** While the page is not in full screen, show whether the face is seen well. */
async function preview() {
  for (; ; await wait(200)) {
    if (!$("stage").hidden) continue;
    const found = await estimate("?alone=1");
    $("status").textContent = found.problem ?? "Your face is seen well.";
    $("start").disabled = "problem" in found || !$("hfov").checkValidity();
  }
}

/** Estimate the gaze in the next image; return the answer, or its problem, and the delay. */
async function estimate(query = "") {
  const image = await photo(), began = performance.now();
  const found = await post(`look${query}`, image).catch((error) => ({ problem: error.message }));
  return { ...found, delay_ms: Math.round(performance.now() - began) };
}

/** Run a function in full screen, and show what it reports; if the window changes, show why it ended. */
async function inFullScreen(run, ending = CHANGED) {
  $("message").textContent = "";
  $("result").hidden = true;
  $("picture").removeAttribute("viewBox"); // without it, the picture is not shown
  $("stage").hidden = false;
  for (const child of $("stage").children) child.hidden = true;
  try {
    await document.documentElement.requestFullscreen();
    await wait(500); // until the window has its size
    const changed = new Promise((_, reject) => {
      onresize = document.onfullscreenchange = () => reject(Error(ending));
    });
    $("report").textContent = await Promise.race([run(), changed]);
    $("result").hidden = false;
  } catch (error) {
    $("message").textContent = error.message;
  }
  onresize = document.onfullscreenchange = onkeydown = null;
  $("stage").hidden = true;
  if (document.fullscreenElement) await document.exitFullscreen();
}

function hint(text) {
  $("hint").hidden = !text;
  $("hint").textContent = text;
}

/** Move the middle of an element to a point, or to the edge nearest to it; without a point, hide the element. */
function move(id, x, y) {
  $(id).hidden = x == null;
  $(id).style.left = `${Math.min(Math.max(x, 0), innerWidth)}px`;
  $(id).style.top = `${Math.min(Math.max(y, 0), innerHeight)}px`;
}

/** Show the letter E at a dot until the right key is pressed and the server accepts the image of this moment. */
async function askLetter(dot, accept) {
  while (!$("stage").hidden) {
    const arrow = Object.keys(TURNS)[Math.floor(4 * Math.random())];
    Object.assign($("letter").dataset, { dot, arrow });
    $("letter").style.rotate = `${TURNS[arrow]}deg`;
    $("letter").animate([{ outlineOffset: "40px" }, { outlineOffset: "0px" }], 800);
    move("letter", ...place(dot));
    const pressed = await new Promise((resolve) => (onkeydown = (event) => event.key in TURNS && resolve(event.key)));
    onkeydown = null;
    hint("");
    if (pressed === arrow) {
      const answer = await photo().then(accept).catch((error) => hint(error.message));
      if (answer) return answer;
    } else hint("That was another arrow: look at the letter, and press the arrow of its strokes.");
  }
  throw Error(CHANGED);
}

async function calibrate() {
  const width_px = innerWidth, height_px = innerHeight, pixel_mm = CARD_MM / $("card").value;
  const hfov_deg = Number($("hfov").value), camera = cameraName();
  await post("start", { width_px, height_px, pixel_mm, hfov_deg, camera, tab: TAB });
  for (const dot of DOTS.keys()) await askLetter(dot, (image) => post(`add?dot=${dot}&tab=${TAB}`, image));
  onresize = document.onfullscreenchange = null;
  hint("One moment …");
  const { dots, report } = await post("finish", null);
  draw(dots, width_px, height_px);
  await useCalibration();
  return report;
}

/** Draw each dot, and lines to the raw (grey) and the calibrated (blue) point; held-out dots are filled. */
function draw(dots, width, height) {
  const add = (name, values) => {
    const shape = $("picture").appendChild(document.createElementNS("http://www.w3.org/2000/svg", name));
    for (const [key, value] of Object.entries(values)) shape.setAttribute(key, value);
  };
  const r = width / 70;
  $("picture").setAttribute("viewBox", `${-0.2 * width} ${-0.2 * height} ${1.4 * width} ${1.4 * height}`);
  $("picture").replaceChildren();
  add("rect", { width, height, fill: "#fff", stroke: "#b8c2cc" });
  dots.forEach((dot, index) => {
    const [x, y] = place(index, width, height);
    for (const [name, color] of [["raw", "#7b8794"], ["calibrated", "#0072b2"]]) {
      const [x2, y2] = [dot[`${name}_x_px`], dot[`${name}_y_px`]];
      add("line", { x1: x, y1: y, x2, y2, stroke: color, "stroke-width": r / 3 });
      add("circle", { cx: x2, cy: y2, r: r / 2, fill: color });
    }
    add("circle", { cx: x, cy: y, r, fill: index < 9 ? "#fff" : "#d55e00", stroke: "#d55e00", "stroke-width": r / 3 });
  });
}

/** Show the calibration that the server uses, if any. */
async function useCalibration() {
  known = await (await fetch("calibration")).json();
  $("live").disabled = !known.date;
  $("known").textContent = `Calibration of ${known.date}, network ${known.network}, camera ${known.camera}; ` +
    `error on other letters ${known.error_deg?.toFixed(1)}°.`;
}

function checkSetup() {
  const { width_px, height_px, camera } = known;
  if (innerWidth !== width_px || innerHeight !== height_px)
    throw Error(`The calibration is for a screen of ${width_px} x ${height_px} px: use it, or calibrate again.`);
  if (cameraName() !== camera) throw Error(`The calibration is for the camera ${camera}: use it, or calibrate again.`);
}

async function check() {
  checkSetup();
  let error = 0;
  for (const dot of CHECKED) {
    const [x, y] = place(dot);
    const found = await askLetter(dot, (image) => post(`look?alone=1&x=${x}&y=${y}`, image));
    error += found.calibrated_error_deg / CHECKED.length;
  }
  const verdict = error < 2 * known.error_deg ? "the calibration still holds" : "calibrate again";
  return `Error ${error.toFixed(1)}°, and ${known.error_deg.toFixed(1)}° after the calibration: ${verdict}.`;
}

async function live() {
  checkSetup();
  const began = performance.now();
  for (let images = 1; !$("stage").hidden; images++) {
    const found = await estimate();
    for (const name of ["raw", "calibrated"]) move(name, found[`${name}_x_px`], found[`${name}_y_px`]);
    const rate = ((1000 * images) / (performance.now() - began)).toFixed(1);
    hint(found.problem ?? `${rate} images/s, ${found.delay_ms} ms. Grey: raw; blue: calibrated. Escape ends.`);
  }
}

/** Show ten dots for two seconds each; the server writes the estimates to a file. */
async function validate() {
  checkSetup();
  const rows = [], began = performance.now();
  for (let time_s = 0; time_s < 20; time_s = (performance.now() - began) / 1000) {
    const [x, y] = place(Math.floor(time_s / 2));
    move("target", x, y);
    rows.push({ time_s, target_x_px: x, target_y_px: y, ...(await estimate(`?x=${x}&y=${y}`)) });
  }
  return (await post("validate", rows)).report;
}

function choose(tab) {
  $("result").hidden = true;
  for (const name of ["calibrate", "live"]) $(name).classList.toggle("chosen", name === tab);
  [$("setup").hidden, $("use").hidden] = [tab === "live", tab === "calibrate"];
}

$("calibrate").onclick = () => choose("calibrate");
$("live").onclick = () => choose("live");
$("start").onclick = () => inFullScreen(calibrate);
$("check").onclick = () => inFullScreen(check);
$("show").onclick = () => inFullScreen(live, "");
$("validate").onclick = () => inFullScreen(validate);
$("camera").onchange = () => openCamera($("camera").value).catch(explain);
$("card").oninput = () => ($("bank").style.width = `${$("card").value}px`);
$("card").oninput();
useCalibration();
openCamera().then(listCameras).then(preview, explain);
