// Shows one table at a time; a row of headers that sort, and a filter.
const kMostRows = 50;  // at first: thousands are seldom read

const view = {
  shown: tables[0], column: null, up: false, all: false,

  show(device) {
    this.device = device;
    this.drawTabs();
    this.open(this.shown);
  },

  open(table) {
    this.shown = table;
    this.column = table.columns.find((each) => each.name === table.sort);
    this.up = table.up === true;
    this.all = false;
    for (const tab of byId('tabs').children) {
      const selected = tab.dataset.table === table.name;
      tab.setAttribute('aria-selected', String(selected));
      tab.tabIndex = selected ? 0 : -1;
    }
    byId('table-panel').setAttribute('aria-label', table.name);
    this.draw();
  },

  drawTabs() {
    const present = tables.filter((table) => table.rows(this.device).length > 0 || table === tables[0]);
    if (!present.includes(this.shown)) this.shown = present[0];
    byId('tabs').replaceChildren(...present.map((table, i) => make('button', {
      type: 'button', role: 'tab', 'aria-controls': 'table-panel', 'data-table': table.name,
      onclick: () => this.open(table),
      onkeydown: (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (step === undefined) return;
        const next = (i + step + present.length) % present.length;
        this.open(present[next]);
        byId('tabs').children[next].focus();
      },
    }, table.name, make('span', { class: 'count', text: count(table.rows(this.device).length) }))));
  },

  rows() {
    const wanted = byId('filter').value.toLowerCase().split(/\s+/).filter((word) => word !== '');
    const text = (row) => this.shown.columns.map((each) =>
      `${this.textOf(each, row)} ${each.more?.(row) ?? ''}`).join(' ').toLowerCase();
    const rows = this.shown.rows(this.device).filter((row) => {
      if (wanted.length === 0) return true;
      const all = text(row);
      return wanted.every((word) => all.includes(word));
    });
    const { value } = this.column, sign = this.up ? 1 : -1;
    return rows.map((row) => [value(row), row]).sort(([a], [b]) =>
      sign * (typeof a === 'string' ? a.localeCompare(b) : a - b)).map(([, row]) => row);
  },

  textOf(column, row) {
    const value = column.value(row);
    return column.text === undefined ? String(value) : column.text(value);
  },

  header(column) {
    const sorts = column === this.column;
    return make('th', {
      scope: 'col', class: column.kind, 'aria-sort': !sorts ? null : this.up ? 'ascending' : 'descending',
    }, make('button', {
      type: 'button', onclick: () => this.sortBy(column),
      text: column.name + (!sorts ? '' : this.up ? ' ▲' : ' ▼'),
    }));
  },

  // `greatest` of the column, for a bar beside the number; 0: none.
  cell(column, row, greatest) {
    const text = this.textOf(column, row), cell = make('td', { class: column.kind, 'data-name': column.name });
    // Names of templates may fill a window.
    const clamped = (tag, whole) => make(tag, { class: 'clamped', title: whole, text: whole });
    if (column.is_moment) {
      cell.append(make('button', {
        type: 'button', class: 'moment', title: 'Choose this moment', text,
        onclick: () => timeline.choose(timeline.nearest(column.value(row))),
      }));
    } else {
      cell.append(column.clamped ? clamped('span', text) : text);
    }
    if (column.more !== undefined) cell.append(clamped('small', column.more(row)));
    if (greatest > 0) {
      cell.append(make('i', { class: 'share', style: `width:${column.value(row) / greatest * 100}%` }));
    }
    return cell;
  },

  draw() {
    const { columns, about } = this.shown, rows = this.rows();
    const shown = this.all ? rows : rows.slice(0, kMostRows);
    const greatest = columns.map((column) => (column.share ?
      this.shown.rows(this.device).reduce((most, row) => Math.max(most, column.value(row)), 0) : 0));
    const head = make('tr', {}, ...columns.map((column) => this.header(column)));
    const body = shown.map((row) =>
      make('tr', {}, ...columns.map((column, i) => this.cell(column, row, greatest[i]))));
    const empty = rows.length === 0 ? [make('p', { class: 'empty', text: 'No rows.' })] : [];
    byId('table-about').textContent = `${about} ${plural(rows.length, 'row')}.`;
    byId('table-panel').replaceChildren(
      make('table', {}, make('thead', {}, head), make('tbody', {}, ...body)), ...empty);
    byId('more').hidden = shown.length === rows.length;
    byId('more').textContent = `Show all ${count(rows.length)} rows`;
  },

  // The other way around when it is sorted by this already; amounts begin with the greatest.
  sortBy(column) {
    this.up = column === this.column ? !this.up : column.kind !== 'number';
    this.column = column;
    this.draw();
    byId('table-panel').querySelector('[aria-sort] button').focus();
  },
};

function listenOnTables() {
  byId('filter').addEventListener('input', () => view.draw());
  byId('more').addEventListener('click', () => {
    view.all = true;
    view.draw();
  });
}
