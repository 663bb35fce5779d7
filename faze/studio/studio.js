// Sliders -> codes -> decoders -> canvases. Codes in studio.json are frontal: a frontal code times R(pitch, yaw)
// transposed is at (pitch, yaw), with R = R_y(yaw) R_x(pitch).
const RANGE_DEG = 45, WALK_SECONDS = 4, FRAMES_PER_SECOND = 25, PICTURE_SCALE = 4;
const ANGLES = { "gaze pitch": ["gaze", 0], "gaze yaw": ["gaze", 1], "head pitch": ["head", 0], "head yaw": ["head", 1] };
// The smallest module with a vector instruction.
const SIMD = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11]);

const get = (id) => document.getElementById(id);
const say = (words) => { get("message").textContent = words; get("message").hidden = !words; };
const sliders = {};
let studio, views = [], asked = 0, playing = null;

function rotation(pitchDeg, yawDeg) {
  const [p, y] = [pitchDeg, yawDeg].map((degrees) => (degrees * Math.PI) / 180);
  const [sp, cp, sy, cy] = [Math.sin(p), Math.cos(p), Math.sin(y), Math.cos(y)];
  return [[cy, sy * sp, sy * cp], [0, cp, -sp], [-sy, cy * sp, cy * cp]];
}

function turned(code, R) { // rows times R transposed
  const found = new Float32Array(code.length);
  for (let row = 0; row < code.length; row += 3)
    for (let column = 0; column < 3; column++)
      found[row + column] = code[row] * R[column][0] + code[row + 1] * R[column][1] + code[row + 2] * R[column][2];
  return found;
}

const value = (name) => Number(sliders[name].value);

function codesOf(model) {
  const mine = get("strip").selectedIndex, other = get("other").selectedIndex, share = value("share") / 100;
  const app = Float32Array.from(model.codes.app[mine], (number, at) => {
    let mixed = (1 - share) * number + share * model.codes.app[other][at];
    model.components.forEach((component, index) => { mixed += value(`component ${index + 1}`) * component[at]; });
    return mixed;
  });
  const angles = (code) => rotation(value(`${code} pitch`), value(`${code} yaw`));
  return { app, gaze: turned(model.codes.gaze[mine], angles("gaze")), head: turned(model.codes.head[mine], angles("head")) };
}

// Each decoder works on one picture; of what comes meanwhile only the last is decoded.
function decode() {
  asked += 1;
  for (const view of views) {
    view.waiting = { codes: codesOf(view.model), number: asked };
    send(view);
  }
}

function send(view) {
  if (view.busy || !view.waiting) return;
  view.busy = true;
  view.worker.postMessage(view.waiting);
  view.waiting = null;
}

function show(view, { pixels, number }) {
  view.canvas.getContext("2d").putImageData(new ImageData(pixels, view.model.width, view.model.height), 0, 0);
  view.canvas.dataset.shown = number;
  const now = performance.now();
  if (now - view.times.at(-1) > 500) view.times = []; // nobody moved anything
  view.times = [...view.times.slice(-30), now];
  const rates = views.map(({ times }) => (1000 * (times.length - 1)) / (times.at(-1) - times[0]));
  const slowest = Math.min(...rates);
  get("rate").value = slowest > 0 ? `${slowest.toFixed(0)} pictures a second` : "";
}

function slider(parent, name, words, range, step, unit) {
  const label = document.createElement("label");
  label.className = "slider";
  label.append(words);
  const told = label.appendChild(document.createElement("output"));
  const input = label.appendChild(document.createElement("input"));
  Object.assign(input, { type: "range", min: range[0], max: range[1], step, value: 0, name });
  input.setAttribute("aria-label", name);
  if (name.endsWith("yaw")) input.className = "mirrored"; // a positive yaw looks to the left of the picture
  input.tell = () => { told.value = `${input.value.replace("-", "−")}${unit}`; };
  input.addEventListener("input", () => { input.tell(); decode(); });
  input.tell();
  parent.insertBefore(label, parent.querySelector(name === "share" ? ".note" : ".buttons"));
  sliders[name] = input;
}

function set(values) {
  for (const [name, number] of Object.entries(values)) {
    sliders[name].value = number;
    sliders[name].tell();
  }
  decode();
}

const names = Object.keys(ANGLES);
const front = () => Object.fromEntries(names.map((name) => [name, 0]));
const own = () => Object.fromEntries(names.map((name, at) => [name, studio.strips[get("strip").selectedIndex].label_deg[at]]));
const plain = () => Object.fromEntries(Object.keys(sliders).filter((name) => !ANGLES[name]).map((name) => [name, 0]));

function choose() {
  const strip = studio.strips[get("strip").selectedIndex];
  const [gp, gy, hp, hy] = strip.label_deg.map((degrees) => `${degrees.toFixed(0).replace("-", "−")}°`);
  get("input").src = strip.picture;
  get("label").textContent = `gaze ${gp}, ${gy}; head ${hp}, ${hy}`;
  set({ ...own(), ...plain() });
}

// All pictures side by side, each under its name, as a person would keep them.
function composite(canvas) {
  const [widest, tallest] = ["width", "height"].map((side) => Math.max(...views.map((view) => view.model[side])));
  const scale = PICTURE_SCALE * Math.max(1, Math.round(128 / widest)), gap = 16, line = 28;
  const width = views.length * (widest * scale + gap) + gap, height = tallest * scale + line + 2 * gap;
  if (canvas.width !== width) Object.assign(canvas, { width, height });
  const paint = canvas.getContext("2d");
  paint.fillStyle = "#fff";
  paint.fillRect(0, 0, width, height);
  paint.fillStyle = "#1f2933";
  paint.font = "600 17px system-ui, sans-serif";
  views.forEach((view, at) => {
    const left = gap + at * (widest * scale + gap);
    paint.drawImage(view.canvas, left, gap, widest * scale, tallest * scale);
    paint.fillText(view.model.name, left, gap + tallest * scale + 22);
  });
  return canvas;
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

const fileName = (what) => `${studio.dataset}_${studio.strips[get("strip").selectedIndex].person}_${what}`;

// From one end of the range to the other and back; what comes with each step is the caller's.
function walk(eachStep) {
  if (playing) return playing;
  const name = get("walk").value, before = value(name), began = performance.now();
  playing = new Promise((resolve) => {
    const step = () => {
      const share = Math.min(1, (performance.now() - began) / (1000 * WALK_SECONDS));
      set({ [name]: share < 1 ? Math.round(-RANGE_DEG * Math.cos(2 * Math.PI * share)) : before });
      eachStep?.();
      if (share < 1) setTimeout(step, 1000 / FRAMES_PER_SECOND);
      else { playing = null; resolve(); }
    };
    step();
  });
  return playing;
}

async function record() {
  const type = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm"].find((each) => MediaRecorder.isTypeSupported(each));
  const canvas = composite(document.createElement("canvas")), parts = [];
  const recorder = new MediaRecorder(canvas.captureStream(FRAMES_PER_SECOND), { mimeType: type, videoBitsPerSecond: 4e6 });
  recorder.ondataavailable = ({ data }) => parts.push(data);
  const ended = new Promise((resolve) => { recorder.onstop = resolve; });
  recorder.start();
  get("webm").disabled = true;
  await walk(() => composite(canvas));
  recorder.stop();
  await ended;
  get("webm").disabled = false;
  save(new Blob(parts, { type: "video/webm" }), `${fileName(get("walk").value.replace(" ", "_"))}.webm`);
}

function view(model) {
  const figure = get("pictures").appendChild(document.createElement("figure"));
  const canvas = figure.appendChild(document.createElement("canvas"));
  Object.assign(canvas, { width: model.width, height: model.height });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `decoded by ${model.name}`);
  figure.appendChild(document.createElement("figcaption")).textContent = model.name;
  const found = { model, canvas, worker: new Worker("worker.js", { type: "module" }), busy: false, waiting: null, times: [] };
  found.ready = new Promise((resolve, reject) => {
    found.worker.onerror = (event) => reject(new Error(event.message || "the decoder's script did not load"));
    found.worker.onmessage = ({ data }) => {
      if (data.failed) reject(new Error(data.failed)), say(`${model.name} cannot be decoded: ${data.failed}`);
      else if (data.ready) resolve();
      else { show(found, data); found.busy = false; send(found); }
    };
  });
  found.worker.postMessage({ model: { decoder: model.decoder, width: model.width, height: model.height } });
  return found;
}

async function start() {
  if (typeof WebAssembly !== "object" || !WebAssembly.validate(SIMD)) {
    say("This browser has no WebAssembly SIMD, which the decoders need: a current Chromium, Firefox or Safari has it.");
    return;
  }
  const answer = await fetch("studio.json");
  if (!answer.ok) throw new Error("studio.json is missing");
  studio = await answer.json();
  for (const { person } of studio.strips) for (const id of ["strip", "other"]) get(id).add(new Option(person));
  for (const name of names) {
    slider(get("angles"), name, name, [-RANGE_DEG, RANGE_DEG], 0.5, "°");
    get("walk").add(new Option(name));
  }
  get("walk").value = "gaze yaw";
  slider(get("looks"), "share", "so far", [0, 100], 1, " %");
  studio.models[0].components.forEach((_, at) => slider(get("looks"), `component ${at + 1}`, `direction ${at + 1}`, [-3, 3], 0.1, ""));
  get("other").selectedIndex = studio.strips.length - 1;
  views = studio.models.map(view);
  get("strip").addEventListener("change", choose);
  get("other").addEventListener("change", decode);
  get("front").addEventListener("click", () => set(front()));
  get("own").addEventListener("click", () => set(own()));
  get("plain").addEventListener("click", () => set(plain()));
  get("play").addEventListener("click", () => walk());
  get("png").addEventListener("click", () => composite(document.createElement("canvas")).toBlob((blob) => save(blob, `${fileName("picture")}.png`)));
  if (typeof MediaRecorder === "undefined") Object.assign(get("webm"), { disabled: true, title: "This browser records no video." });
  else get("webm").addEventListener("click", record);
  await Promise.all(views.map(({ ready }) => ready));
  document.querySelector("main").hidden = false;
  say("");
  choose();
}

start().catch((error) => say(`The studio did not start: ${error.message}`));
