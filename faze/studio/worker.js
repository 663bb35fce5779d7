// One decoder: codes in, pixels out, on one thread.
import * as ort from "./ort/ort.wasm.bundle.min.mjs";

ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = { wasm: new URL("./ort/ort-wasm-simd-threaded.wasm", import.meta.url).href };
let session, model;

self.onmessage = async ({ data }) => {
  try {
    if (data.model) {
      model = data.model;
      session = await ort.InferenceSession.create(new URL(model.decoder, import.meta.url).href, { executionProviders: ["wasm"] });
      self.postMessage({ ready: true });
      return;
    }
    const { app, gaze, head } = data.codes;
    const { image } = await session.run({
      app: new ort.Tensor("float32", app, [1, app.length]),
      gaze: new ort.Tensor("float32", gaze, [1, gaze.length / 3, 3]),
      head: new ort.Tensor("float32", head, [1, head.length / 3, 3]),
    });
    const values = image.data, count = model.height * model.width;
    const pixels = new Uint8ClampedArray(4 * count);
    for (let at = 0; at < count; at++) {
      for (let color = 0; color < 3; color++) pixels[4 * at + color] = Math.floor(Math.min(255, Math.max(0, (values[color * count + at] + 1) * 127.5)));
      pixels[4 * at + 3] = 255;
    }
    self.postMessage({ pixels, number: data.number }, [pixels.buffer]);
  } catch (error) {
    self.postMessage({ failed: String(error && error.message ? error.message : error) });
  }
};
