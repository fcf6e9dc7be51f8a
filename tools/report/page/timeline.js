// The timeline: what was taken, stacked by kind or process, with the cap and the refusals.
const timeline = {
  canvas: byId('timeline'),
  by: 'kind',
  from: 0, to: 1,     // what is shown, ns
  chosen: 0,          // index of the chosen point
  hovered: null,
  selecting: null,    // [from, to] in pixels while the mouse is dragged
  onChoose: () => {},

  show(device) {
    this.device = device;
    this.end = Math.max(recording.duration_ns, 1);
    this.from = Math.min(recording.from_ns, this.end - 1);
    this.to = this.end;
    this.totals = device.times.map((_, i) => device.kinds.reduce((sum, series) => sum + series[1][i], 0));
    this.choose(this.nearest(device.peak_ns));
  },

  series() {
    if (this.by === 'kind') {
      return this.device.kinds.map(([kind, values]) => ({ name: kindName(kind), color: kindColor(kind), values }));
    }
    return this.device.by_process.map(([process, values], i) => ({
      name: process < 0 ? 'other processes' : processName(process),
      color: process < 0 ? otherColor : processColors[i % processColors.length], values }));
  },

  // The point that is in force at a time: the last one that is not later.
  nearest(ns) {
    const times = this.device.times;
    let low = 0, high = times.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (times[middle] <= ns) low = middle; else high = middle - 1;
    }
    return low;
  },

  choose(index) {
    if (this.device.times.length === 0) return this.draw();
    this.chosen = Math.max(0, Math.min(this.device.times.length - 1, index));
    const at = this.device.times[this.chosen];
    if (at < this.from || at > this.to) this.move(at - (this.from + this.to) / 2);
    this.draw();
    this.onChoose(at);
  },

  // Shows `factor` as long a time around one that stays where it is.
  zoom(factor, around = this.device.times[this.chosen] ?? 0) {
    const length = Math.max(Math.min((this.to - this.from) * factor, this.end), Math.min(1000, this.end));
    const share = Math.max(0, Math.min(1, (around - this.from) / (this.to - this.from)));
    this.from = Math.max(0, Math.min(around - share * length, this.end - length));
    this.to = this.from + length;
    this.draw();
  },

  move(ns) {
    const length = this.to - this.from;
    this.from = Math.max(0, Math.min(this.from + ns, this.end - length));
    this.to = this.from + length;
    this.draw();
  },

  all() {
    this.from = Math.min(recording.from_ns, this.end - 1);
    this.to = this.end;
    this.draw();
  },

  draw() {
    drawTimeline(this);
    this.describe();
  },

  // The same in words and numbers, of the moment under the pointer or else of the chosen one.
  describe() {
    const device = this.device, at = this.hovered ?? this.chosen;
    const rows = [];
    const row = (swatch, name, value) => rows.push(make('tr', { class: value > 0 ? '' : 'none' },
      make('td', {}, swatch), make('td', { text: name }), make('td', { text: bytes(value) })));
    for (const { name, color, values } of this.series()) {
      row(make('span', { class: 'swatch', style: `background:${color}` }), name, values[at] ?? 0);
    }
    if (device.caps[at] > 0) row(make('span', { class: 'swatch line' }), 'cap', device.caps[at]);
    if (device.refusals > 0) {
      rows.push(make('tr', {}, make('td', { class: 'refused', text: '▼' }),
        make('td', { text: 'refused requests, in all' }),
        make('td', { text: count(device.refusals) })));
    }
    byId('legend').tBodies[0].replaceChildren(...rows);
    if (device.times.length === 0) return byId('moment').replaceChildren('Nothing was recorded of this GPU.');
    const peak = device.times[at] === device.peak_ns ? ' (the peak)' : '';
    byId('moment').replaceChildren(make('strong', { text: bytes(this.totals[at] ?? 0) }),
      `taken at ${time(device.times[at], (this.to - this.from) / 1000)}${peak}; ` +
      `${bytes(device.live[at])} asked for and in use`);
  },
};
