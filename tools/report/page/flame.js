// The flame graph, the outermost function at the top.
const flame = {
  of: 'peak',
  words: '',
  box: byId('flame'),

  // What is drawn, and a sentence about it.
  source(device) {
    const sites = recording.sites.filter((site) => site.device === device.device);
    const fromSites = (amount, number) =>
      sites.map((site) => [site.process, site.kind, site.stack, site[amount], site[number]]);
    if (this.of === 'allocated') {
      return [fromSites('allocated', 'allocations'), 'All that was allocated while this was recorded, released or not'];
    }
    if (this.of === 'left') {
      return [fromSites('left', 'left_count'), 'What nobody had released when its process, or the recording, ended'];
    }
    if (this.of === 'peak') {
      return [partsOf(device.peak_parts), `What was taken at the peak, at ${time(device.peak_ns)}`];
    }
    const wanted = device.times[timeline.chosen] ?? 0;
    const moments = [{ ns: device.peak_ns, parts: device.peak_parts }, ...device.moments];
    const moment = moments.reduce((best, each) =>
      (Math.abs(each.ns - wanted) < Math.abs(best.ns - wanted) ? each : best));
    const exact = moment.ns === wanted ? '' : `, the nearest that stacks were kept of to ${time(wanted, 1e6)}`;
    return [partsOf(moment.parts), `What was taken at ${time(moment.ns, 1e6)}${exact}`];
  },

  show(device) {
    const [parts, sentence] = this.source(device);
    this.root = flameTree(parts);
    this.zoomed = this.root;
    this.sentence = sentence;
    this.draw();
  },

  matches(node) {
    return node.parent !== null && node.about.name.toLowerCase().includes(this.words);
  },

  draw() {
    const { root, zoomed, box } = this;
    const found = this.words === '' ? '' :
      `; “${byId('flame-search').value}” is in ${bytes(amountFound(root, (each) => this.matches(each)))} of it`;
    byId('flame-about').textContent = `${this.sentence}: ${bytes(root.amount)}${found}.`;
    box.classList.toggle('searching', this.words !== '');
    byId('flame-detail').textContent = root.amount === 0 ? '' : isTouched() ?
      'Tap a function to show it alone, and one above it to go back.' :
      'Point at a function, or go there with the arrow keys. A click or Enter shows it alone, Escape all again.';
    if (root.amount === 0) {
      box.style.height = 'auto';
      return box.replaceChildren(make('p', { class: 'empty', style: 'padding-left:12px', text: 'Nothing.' }));
    }
    this.cells = new Map();
    const above = [];
    for (let node = zoomed.parent; node !== null; node = node.parent) above.unshift(node);
    const cells = above.map((node, row) => this.cell(node, row, 0, 1, true));
    let rows = above.length;
    const place = (node, row, left, width) => {
      // Narrower ones cannot be seen.
      if (node !== zoomed && (width * box.clientWidth < 1.5 || cells.length > 6000)) return;
      cells.push(this.cell(node, row, left, width, false));
      rows = Math.max(rows, row + 1);
      let at = left;
      for (const each of childrenOf(node)) {
        const share = width * each.amount / node.amount;
        place(each, row + 1, at, share);
        at += share;
      }
    };
    place(zoomed, above.length, 0, 1);
    const rowHeight = isTouched() ? 28 : 22;
    box.style.height = `${rows * rowHeight}px`;
    box.replaceChildren(...cells.map(({ element, row }) => {
      element.style.top = `${row * rowHeight}px`;
      return element;
    }));
    this.cells.get(zoomed).tabIndex = 0;
  },

  cell(node, row, left, width, above) {
    const narrow = width * this.box.clientWidth < 28;
    const plain = node.about.module === '';
    const label = node.parent === null ? `all, ${bytes(node.amount)}` : node.about.name;
    const element = make('div', {
      class: `frame${narrow ? ' narrow' : ''}${above ? ' above' : ''}${plain ? ' plain' : ''}` +
        `${this.words !== '' && this.matches(node) ? ' found' : ''}`,
      role: 'treeitem', tabindex: '-1', 'aria-level': row + 1,
      'aria-label': `${label}, ${bytes(node.amount)}, ${percent(node.amount, this.root.amount)}`,
      style: `left:${left * 100}%;width:${width * 100}%;--hue:${plain ? 0 : hueOf(node.about.module)}`,
      text: narrow ? '' : label,
      onclick: () => this.zoom(node), onmouseenter: () => this.tell(node), onfocus: () => this.tell(node),
      onkeydown: (event) => this.key(event, node),
    });
    this.cells.set(node, element);
    return { element, row };
  },

  zoom(node) {
    this.zoomed = node;
    this.draw();
    this.focus(node);
  },

  focus(node) {
    const element = this.cells.get(node);
    if (element === undefined) return;
    for (const each of this.box.querySelectorAll('[tabindex="0"]')) each.tabIndex = -1;
    element.tabIndex = 0;
    element.focus({ preventScroll: true });
    this.tell(node);
  },

  tell(node) {
    const { name, place, module } = node.about;
    const kinds = [...node.kinds].sort((a, b) => b[1] - a[1])
      .map(([kind, amount]) => `${kindName(kind)} ${bytes(amount)}`);
    byId('flame-detail').replaceChildren(make('b', { text: name }),
      ` ${[place, module].filter((each) => each !== '').join(', ')}`, make('br'),
      `${bytes(node.amount)}, ${percent(node.amount, this.root.amount)}` +
      `${node.count > 0 ? ' in ' + plural(node.count, 'allocation') : ''}: ${kinds.join(', ')}`);
  },

  key(event, node) {
    const siblings = node.parent === null ? [node] : childrenOf(node.parent).filter((each) => this.cells.has(each));
    const beside = (step) => siblings[siblings.indexOf(node) + step];
    const keys = {
      ArrowDown: () => this.focus(childrenOf(node)[0]), ArrowUp: () => this.focus(node.parent),
      ArrowLeft: () => this.focus(beside(-1)), ArrowRight: () => this.focus(beside(1)),
      Enter: () => this.zoom(node), ' ': () => this.zoom(node), Escape: () => this.zoom(this.root),
    };
    if (keys[event.key] === undefined) return;
    event.preventDefault();
    keys[event.key]();
  },
};
