// Puts the page together: what was recorded, the summary, and what follows from the GPU chosen.
function warn(text, bad) {
  byId('warnings').append(make('p', { class: bad ? 'warning bad' : 'warning', text }));
}

function describeRecording() {
  byId('command').textContent = recording.command;
  document.title = `GPU memory of ${recording.command}`;
  const began = new Date(recording.began_ms).toLocaleString();
  byId('origin').textContent = [recording.host && `on ${recording.host}`, began,
    `${duration(recording.duration_ns)} long`, plural(recording.processes.length, 'process', 'processes'),
    plural(recording.events, 'event')]
    .filter((each) => each !== '').join(' · ');
  if (recording.damage !== '') warn(`${recording.damage} What is shown precedes that.`, true);
  if (recording.dropped > 0) {
    warn(`${plural(recording.dropped, 'event')} could not be recorded: sums may be wrong.`, true);
  }
  if (recording.attached) warn('It began while processes were running: what they had before has no call stack.');
  if (!recording.stacks) warn('Call stacks were not recorded.');
  if (recording.devices.length === 0) warn('No GPU memory was used.');
}

function card(name, value, note, { bad = false, share = null } = {}) {
  return make('div', { class: bad ? 'card bad' : 'card' }, make('div', { class: 'name', text: name }),
    make('div', { class: 'value', text: value, 'data-card': name }), make('div', { class: 'note', text: note }),
    share === null ? null : make('div', { class: 'meter' },
      make('i', { class: share > 0.95 ? 'full' : '', style: `width:${Math.min(100, share * 100)}%` })));
}

function summarize(device) {
  const pools = recording.pools.filter((pool) => pool.device === device.device);
  const unused = Math.max(0, ...pools.map((pool) => pool.unused));
  const sites = recording.sites.filter((site) => site.device === device.device);
  const sum = (of) => sites.reduce((total, site) => total + site[of], 0);
  const whole = device.cap || device.physical;
  byId('cards').replaceChildren(
    card('Peak', bytes(device.peak), `at ${time(device.peak_ns)}` +
      (whole > 0 ? `, ${percent(device.peak, whole)} of ${device.cap ? 'the cap' : 'the GPU'}` : ''),
    { share: whole > 0 ? device.peak / whole : null }),
    card('In use at most', bytes(device.most_live), `${bytes(device.most_needed)} needed` +
      (pools.length > 0 ? '; pools could have given back the rest' : '')),
    card('Refused', count(device.refusals), device.refusals === 0 ? 'every request was served' :
      'requests; the table says what would have helped', { bad: device.refusals > 0 }),
    card('Left at the end', bytes(sum('left')), `${plural(sum('left_count'), 'allocation')} nobody released`),
    card('Allocated in all', bytes(sum('allocated')), `in ${plural(sum('allocations'), 'allocation')}`),
    ...(pools.length > 0 ? [card('Unused in a pool', bytes(unused), 'reserved and not used, at worst')] : []));
}

function showDevice(device) {
  timeline.onChoose = () => {};
  timeline.show(device);
  flame.show(device);
  view.show(device);
  summarize(device);
  timeline.onChoose = () => {
    if (flame.of === 'moment') flame.show(device);
  };
}

function listen() {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', (event) => {
    setTheme(event.matches);
    timeline.draw();
  });
  byId('theme').addEventListener('click', () => {
    setTheme(document.documentElement.dataset.theme !== 'dark');
    timeline.draw();
  });
  const buttons = document.querySelectorAll('[data-of]');
  for (const button of buttons) {
    button.addEventListener('click', () => {
      flame.of = button.dataset.of;
      press(buttons, button);
      flame.show(timeline.device);
    });
  }
  byId('flame-search').addEventListener('input', (event) => {
    flame.words = event.target.value.trim().toLowerCase();
    flame.draw();
  });
  byId('device').addEventListener('change', (event) => showDevice(recording.devices[event.target.value]));
  let width = flame.box.clientWidth;
  new ResizeObserver(() => {
    if (flame.box.clientWidth === width) return;
    width = flame.box.clientWidth;
    flame.draw();
  }).observe(flame.box);
  listenOnTimeline(timeline);
  listenOnTables();
}

setTheme(matchMedia('(prefers-color-scheme: dark)').matches);
describeRecording();
if (recording.devices.length === 0) {
  for (const panel of document.querySelectorAll('.panel')) panel.hidden = true;
} else {
  byId('device').append(...recording.devices.map((device, i) => make('option', { value: i, text: device.name })));
  byId('device-choice').hidden = recording.devices.length < 2;
  showDevice(recording.devices.reduce((most, each) => (each.peak > most.peak ? each : most)));
  byId('device').value = String(recording.devices.indexOf(timeline.device));
  listen();
}
