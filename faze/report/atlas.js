// The atlas: two pads select pictures from sheets that were decoded in advance. Without this script it stays hidden.
(() => {
  const root = document.getElementById("atlas");
  if (!root) return;
  const steps = Number(root.dataset.steps), range = Number(root.dataset.rangeDeg), middle = (steps - 1) / 2;
  const degrees = (index) => Math.round((1 - 2 * index / (steps - 1)) * range);
  const signed = (number) => (number > 0 ? "+" : number < 0 ? "−" : "") + Math.abs(number) + "°";
  const clamp = (index) => Math.min(steps - 1, Math.max(0, Math.round(index)));
  root.hidden = false;

  for (const pad of root.querySelectorAll(".pad")) {
    const views = [...root.querySelectorAll(`canvas[data-code="${pad.dataset.code}"]`)].map((canvas) => {
      const sheet = canvas.previousElementSibling;
      const dot = pad.appendChild(document.createElement("i"));
      dot.style.background = canvas.dataset.color;
      return { canvas, sheet, dot, seen: JSON.parse(canvas.dataset.seen) };
    });
    const knob = pad.querySelector("b");
    const output = pad.parentElement.querySelector("output");
    let column = middle, row = middle; // counted from the highest yaw and the highest pitch

    const place = (point, x, y) => {
      point.style.left = `${Math.min(100, Math.max(0, x))}%`;
      point.style.top = `${Math.min(100, Math.max(0, y))}%`;
    };
    const draw = () => {
      place(knob, (100 * column) / (steps - 1), (100 * row) / (steps - 1));
      for (const { canvas, sheet, dot, seen } of views) {
        const [pitch, yaw] = seen[row][column];
        place(dot, 50 - (50 * yaw) / range, 50 - (50 * pitch) / range);
        const width = sheet.naturalWidth / steps, height = sheet.naturalHeight / steps;
        if (!width) continue; // not decoded yet
        if (canvas.width !== width) Object.assign(canvas, { width, height });
        canvas.getContext("2d").drawImage(sheet, column * width, row * height, width, height, 0, 0, width, height);
      }
      const text = `pitch ${signed(degrees(row))}, yaw ${signed(degrees(column))}`;
      output.value = text;
      pad.setAttribute("aria-valuenow", degrees(column));
      pad.setAttribute("aria-valuetext", text);
    };
    const move = (toColumn, toRow) => {
      [column, row] = [clamp(toColumn), clamp(toRow)];
      draw();
    };
    const follow = (event) => {
      const box = pad.getBoundingClientRect();
      move(((event.clientX - box.left) / box.width) * (steps - 1), ((event.clientY - box.top) / box.height) * (steps - 1));
    };
    pad.addEventListener("pointerdown", (event) => {
      pad.setPointerCapture(event.pointerId);
      pad.focus({ preventScroll: true });
      follow(event);
      event.preventDefault();
    });
    pad.addEventListener("pointermove", (event) => {
      if (pad.hasPointerCapture(event.pointerId)) follow(event);
    });
    const keys = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    pad.addEventListener("keydown", (event) => {
      if (event.key === "Home") move(middle, middle);
      else if (keys[event.key]) move(column + keys[event.key][0], row + keys[event.key][1]);
      else return;
      event.preventDefault();
    });
    for (const { sheet } of views) sheet.addEventListener("load", draw);
    draw();
  }
})();
