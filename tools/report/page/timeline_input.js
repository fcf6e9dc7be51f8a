// Mouse, fingers and keys on the timeline.
function listenOnTimeline(state) {
  const canvas = state.canvas, pointers = new Map();
  const xOf = (event) => event.clientX - canvas.getBoundingClientRect().left;
  let start = null, pinched = false;

  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, xOf(event));
    if (pointers.size === 1) start = xOf(event);
    if (pointers.size === 2) pinched = true;
  });
  canvas.addEventListener('pointermove', (event) => {
    const x = xOf(event), before = pointers.get(event.pointerId);
    if (before === undefined) {
      state.hovered = state.device.times.length > 0 ? state.nearest(state.scale.ns(x)) : null;
      return state.draw();
    }
    if (pointers.size === 2) {
      const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
      const factor = Math.abs(before - other) / Math.max(1, Math.abs(x - other));
      state.zoom(Math.max(0.5, Math.min(2, factor)), state.scale.ns((x + other) / 2));
    } else if (event.pointerType === 'mouse') {
      state.selecting = Math.abs(x - start) > 4 ? [start, x] : null;
      state.draw();
    } else {
      state.move(state.scale.ns(before) - state.scale.ns(x));
    }
    pointers.set(event.pointerId, x);
  });
  const release = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    const x = xOf(event), selected = state.selecting;
    state.selecting = null;
    if (pointers.size > 0) return;
    if (selected !== null && event.type === 'pointerup') {
      const [from, to] = selected.map(state.scale.ns).sort((a, b) => a - b);
      state.from = Math.max(0, from);
      state.to = Math.min(state.end, Math.max(to, state.from + 1000));
      state.draw();
    } else if (!pinched && event.type === 'pointerup' && Math.abs(x - start) <= 4) {
      state.choose(state.nearest(state.scale.ns(x)));
    }
    pinched = false;
  };
  canvas.addEventListener('pointerup', release);
  canvas.addEventListener('pointercancel', release);
  canvas.addEventListener('pointerleave', () => {
    state.hovered = null;
    state.draw();
  });
  canvas.addEventListener('dblclick', () => state.all());
  // The wheel alone scrolls the page.
  canvas.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
    event.preventDefault();
    state.zoom((event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, state.scale.ns(xOf(event)));
  }, { passive: false });

  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const length = state.to - state.from;
    const keys = {
      '+': () => state.zoom(0.5), '=': () => state.zoom(0.5), '-': () => state.zoom(2), '0': () => state.all(),
      ArrowLeft: () => (event.shiftKey ? state.move(-length / 8) : state.choose(state.chosen - 1)),
      ArrowRight: () => (event.shiftKey ? state.move(length / 8) : state.choose(state.chosen + 1)),
      PageUp: () => state.choose(state.chosen - 20), PageDown: () => state.choose(state.chosen + 20),
      Home: () => state.choose(0), End: () => state.choose(state.device.times.length - 1),
      p: () => state.choose(state.nearest(state.device.peak_ns)),
    };
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  });

  byId('zoom-in').addEventListener('click', () => state.zoom(0.5));
  byId('zoom-out').addEventListener('click', () => state.zoom(2));
  byId('zoom-all').addEventListener('click', () => state.all());
  const buttons = document.querySelectorAll('[data-by]');
  for (const button of buttons) {
    button.addEventListener('click', () => {
      state.by = button.dataset.by;
      press(buttons, button);
      state.draw();
    });
  }
  new ResizeObserver(() => state.draw()).observe(canvas);
}
