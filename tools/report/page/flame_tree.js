// Sums what was recorded by call stack into the tree that a flame graph shows.

// A node of the recording's own tree of stacks: its frames, the outermost first.
function framesOf(node) {
  const frames = [];
  for (; node > 0; node = recording.nodes[2 * node]) frames.push(recording.nodes[2 * node + 1]);
  return frames.reverse();
}

function functionOf(frame) {
  const [name, place, module] = recording.frames.slice(3 * frame, 3 * frame + 3);
  return { name: recording.texts[name], place: recording.texts[place], module: recording.texts[module] };
}

// Who called the function that a call site is named after, the nearest first.
function calledFrom(site) {
  const names = framesOf(site.stack).reverse().map((frame) => functionOf(frame).name);
  const own = names.findIndex((name) => site.site.startsWith(name));
  const callers = names.slice(own + 1, own + 4);
  return callers.length === 0 ? '' : 'from ' + callers.join(' ← ');
}

// Lists of parts are five numbers each, one after another.
function partsOf(numbers) {
  const parts = [];
  for (let i = 0; i < numbers.length; i += 5) parts.push(numbers.slice(i, i + 5));
  return parts;
}

// Kinds that no single call stands for, as MemoryKind numbers them.
const kLevels = new Set([5, 6, 7, 8, 9]);

// `parts` are [process, kind, node of the stack, bytes, count].
function flameTree(parts) {
  const make_node = (parent, about) => ({ parent, about, amount: 0, count: 0, kinds: new Map(), children: new Map() });
  const root = make_node(null, { name: 'all', place: '', module: '' });
  const child = (node, key, about) => {
    if (!node.children.has(key)) node.children.set(key, make_node(node, about()));
    return node.children.get(key);
  };
  const several = new Set(parts.map(([process]) => process)).size > 1;
  for (const [process, kind, stack, amount, number] of parts) {
    if (amount === 0) continue;
    let node = root;
    const path = [root];
    if (several) {
      node = child(node, 'process ' + process, () => ({ name: processName(process), place: '', module: '' }));
      path.push(node);
    }
    for (const frame of framesOf(stack)) path.push(node = child(node, frame, () => functionOf(frame)));
    if (stack <= 0) {
      const what = stack < 0 ? ' (smaller call sites)' : kLevels.has(kind) ? '' : ' (no call stack)';
      const name = kindName(kind) + what;
      path.push(child(node, name, () => ({ name, place: '', module: '' })));
    }
    for (const each of path) {
      each.amount += amount;
      each.count += number;
      each.kinds.set(kind, (each.kinds.get(kind) ?? 0) + amount);
    }
  }
  return root;
}

const childrenOf = (node) => [...node.children.values()].sort((a, b) => b.amount - a.amount);

// What functions of this name hold, those within each other once.
function amountFound(node, matches) {
  if (matches(node)) return node.amount;
  let sum = 0;
  for (const each of node.children.values()) sum += amountFound(each, matches);
  return sum;
}
