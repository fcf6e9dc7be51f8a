// Colours that stay the same wherever a thing is drawn.

// By the number of the kind. What pools hold unused is a faint shade of what is used in them.
const kindColors = ['#4a7fc1', '#3ba7a0', '#4f9d57', '#ee8a32', '#e3bd3f', '#a97c50', '--unused', '#a56cb8',
  '#8a94a3', '#c3a6a0', '#ef8fa0'];
const kindColor = (kind) => (kindColors[kind].startsWith('--') ? cssColor(kindColors[kind]) : kindColors[kind]);
const processColors = ['#4a7fc1', '#ee8a32', '#4f9d57', '#a56cb8', '#e3bd3f', '#3ba7a0', '#d3605c', '#a97c50',
  '#7d8fe0', '#ef8fa0'];
const otherColor = '#8a94a3';

const cssColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Modules that are seen together differ as much as their number allows.
const firstHues = [210, 30, 150, 270, 55, 345, 180, 95];
const hues = new Map();
function hueOf(module) {
  if (!hues.has(module)) hues.set(module, firstHues[hues.size] ?? hues.size * 137.5 % 360);
  return hues.get(module);
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  byId('theme').setAttribute('aria-pressed', String(dark));
  byId('theme').textContent = dark ? 'Light' : 'Dark';
}
