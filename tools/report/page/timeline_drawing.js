// Draws the timeline on its canvas.
const margins = { left: 64, right: 12, top: 22, bottom: 26 };

// Round numbers of the unit that fits: at most `most` of them up to `end`.
function ticks(from, to, most, bases) {
  const rough = (to - from) / most;
  let step = bases[bases.length - 1];
  for (const each of bases) {
    if (each >= rough) {
      step = each;
      break;
    }
  }
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return { found, step };
}

const byteSteps = Array.from({ length: 52 }, (_, i) => 2 ** i);
const timeSteps = [];
for (let ten = 1; ten < 1e10; ten *= 10) timeSteps.push(ten, 2 * ten, 5 * ten);
for (const s of [15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400]) timeSteps.push(s * 1e9);
timeSteps.sort((a, b) => a - b);

function scaleOf(state, width, height) {
  const { device, from, to } = state;
  const highest = Math.max(device.peak, 1);
  const caps = device.caps.filter((cap) => cap > 0);
  const cap = caps.length > 0 ? Math.max(...caps) : 0;
  // A cap far above everything would make everything flat.
  const top = (cap > 0 && cap <= 2.5 * highest ? Math.max(cap, highest) : highest) * 1.06;
  const plotWidth = width - margins.left - margins.right, plotHeight = height - margins.top - margins.bottom;
  return {
    top, capShown: cap > 0 && cap <= top, plotWidth, plotHeight,
    x: (ns) => margins.left + (ns - from) / (to - from) * plotWidth,
    y: (amount) => margins.top + plotHeight - amount / top * plotHeight,
    ns: (x) => from + (x - margins.left) / plotWidth * (to - from),
  };
}

function drawTimeline(state) {
  const { canvas, device } = state;
  const width = canvas.clientWidth, height = canvas.clientHeight, ratio = window.devicePixelRatio || 1;
  if (width === 0) return;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext('2d');
  pen.scale(ratio, ratio);
  pen.font = '12px system-ui, "DejaVu Sans", sans-serif';
  const scale = state.scale = scaleOf(state, width, height);
  drawGrid(pen, state, scale, width, height);
  const within = (beside, draw) => {
    pen.save();
    pen.beginPath();
    pen.rect(margins.left - beside, 0, scale.plotWidth + 2 * beside, height - margins.bottom + 1);
    pen.clip();
    draw();
    pen.restore();
  };
  within(0, () => {
    drawAreas(pen, state, scale);
    drawCap(pen, device, scale, state);
  });
  within(6, () => drawMarks(pen, state, scale));
  canvas.setAttribute('aria-label', `${device.name}: memory over ${time(recording.duration_ns)}, ` +
    `peak ${bytes(device.peak)} at ${time(device.peak_ns)}, ${plural(device.refusals, 'refusal')}`);
}

function drawGrid(pen, state, scale, width, height) {
  pen.strokeStyle = cssColor('--grid');
  pen.fillStyle = cssColor('--muted');
  pen.lineWidth = 1;
  pen.textBaseline = 'middle';
  pen.textAlign = 'right';
  for (const amount of ticks(0, scale.top, 6, byteSteps).found) {
    const y = Math.round(scale.y(amount)) + 0.5;
    pen.beginPath();
    pen.moveTo(margins.left, y);
    pen.lineTo(width - margins.right, y);
    pen.stroke();
    pen.fillText(amount === 0 ? '0' : bytes(amount).replace('.0 ', ' '), margins.left - 8, y);
  }
  pen.textBaseline = 'top';
  pen.textAlign = 'center';
  const { found, step } = ticks(state.from, state.to, Math.max(2, scale.plotWidth / 80), timeSteps);
  for (const ns of found) {
    const x = scale.x(ns), label = ns === 0 ? '0' : time(ns, step), half = pen.measureText(label).width / 2;
    if (x + half < width) pen.fillText(label, Math.max(x, half + 2), height - margins.bottom + 8);
  }
}

// A point is in force until the next one, so that areas are stairs.
function drawAreas(pen, state, scale) {
  const times = state.device.times;
  const first = state.nearest(state.from), last = Math.min(times.length - 1, state.nearest(state.to));
  let below = new Float64Array(times.length);
  for (const { color, values } of state.series()) {
    const above = below.slice();
    for (let i = first; i <= last; ++i) above[i] += values[i];
    const edge = (heights, i) => scale.y(heights[i]);
    const until = (i) => scale.x(i + 1 < times.length ? times[i + 1] : state.end);
    pen.beginPath();
    for (let i = first; i <= last; ++i) {
      pen.lineTo(scale.x(times[i]), edge(above, i));
      pen.lineTo(until(i), edge(above, i));
    }
    for (let i = last; i >= first; --i) {
      pen.lineTo(until(i), edge(below, i));
      pen.lineTo(scale.x(times[i]), edge(below, i));
    }
    pen.fillStyle = color;
    pen.fill();
    below = above;
  }
}

function drawCap(pen, device, scale, state) {
  pen.strokeStyle = pen.fillStyle = cssColor('--cap');
  pen.textAlign = 'left';
  const left = margins.left + 6, cap = device.caps[state.nearest(state.from)] ?? 0;
  if (!scale.capShown) {
    pen.textBaseline = 'top';
    if (cap > 0) pen.fillText(`cap ${bytes(cap)}, far above`, left, 4);
    return;
  }
  pen.lineWidth = 1.5;
  pen.setLineDash([6, 4]);
  pen.beginPath();
  let before = 0;
  device.caps.forEach((each, i) => {
    const until = i + 1 < device.times.length ? device.times[i + 1] : state.end;
    if (each !== before) pen.moveTo(scale.x(i === 0 ? 0 : device.times[i]), scale.y(each));
    if (each !== 0) pen.lineTo(scale.x(until), scale.y(each));
    before = each;
  });
  pen.stroke();
  pen.setLineDash([]);
  pen.textBaseline = 'bottom';
  if (cap > 0) pen.fillText(`cap ${bytes(cap)}`, left, scale.y(cap) - 4);
}

function drawMarks(pen, state, scale) {
  const line = (x, color, width) => {
    pen.strokeStyle = color;
    pen.lineWidth = width;
    pen.beginPath();
    pen.moveTo(x, margins.top - 6);
    pen.lineTo(x, margins.top + scale.plotHeight);
    pen.stroke();
  };
  // Many refusals in a row are one mark.
  pen.fillStyle = cssColor('--danger');
  let drawn = -Infinity;
  for (const refusal of recording.refusals) {
    const x = scale.x(refusal.ns);
    if (refusal.device !== state.device.device || x < drawn + 3) continue;
    if (refusal.ns < state.from || refusal.ns > state.to) continue;
    drawn = x;
    pen.beginPath();
    pen.moveTo(x - 5, 5);
    pen.lineTo(x + 5, 5);
    pen.lineTo(x, 14);
    pen.fill();
    pen.globalAlpha = 0.35;
    line(x, pen.fillStyle, 1);
    pen.globalAlpha = 1;
  }
  const times = state.device.times;
  const chosen = times[state.chosen];
  if (chosen >= state.from && chosen <= state.to) line(scale.x(chosen), cssColor('--ink'), 1.5);
  if (state.hovered !== null) line(scale.x(times[state.hovered]), cssColor('--muted'), 1);
  if (state.selecting !== null) {
    const [from, to] = state.selecting;
    pen.fillStyle = cssColor('--accent');
    pen.globalAlpha = 0.2;
    pen.fillRect(Math.min(from, to), margins.top, Math.abs(to - from), scale.plotHeight);
    pen.globalAlpha = 1;
  }
}
