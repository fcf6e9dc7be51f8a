// The tables: which rows each has, and what its columns show. A column is {name, value, text, kind}:
// rows are sorted by `value` and show `text` of it.
const words = (name, value) => ({ name, value, kind: 'text' });
const amount = (name, value) => ({ name, value, text: bytes, kind: 'number' });
const number = (name, value) => ({ name, value, text: count, kind: 'number' });
// Which the timeline then shows.
const moment = (name, value) => ({ name, value, text: (ns) => time(ns, 1e6), kind: 'number', is_moment: true });
const reasons = ['the cap', 'the driver', 'the runtime', 'no ledger'];

const processColumn = words('Process', (row) => processName(row.process));

// The innermost function that is somebody's own, and below it who called it.
const siteColumn = { ...words('Call site', (row) => row.site), kind: 'wide', more: calledFrom, clamped: true };

const tables = [
  { name: 'Call sites', about: 'By where memory was allocated. Churn is what was allocated again and again.',
    rows: (device) => recording.sites.filter((row) => row.device === device.device), sort: 'Most at once',
    columns: [siteColumn, processColumn, words('Kind', (row) => kindName(row.kind)),
      { ...amount('Most at once', (row) => row.most_live), share: true }, amount('Left', (row) => row.left),
      amount('Allocated', (row) => row.allocated), number('Times', (row) => row.allocations),
      { name: 'Mean life', value: (row) => row.lifetime_ns, text: duration, kind: 'number' }] },
  { name: 'Processes', about: 'Each process on this GPU, by the most that it had.',
    rows: (device) => recording.uses.filter((row) => row.device === device.device), sort: 'Peak',
    columns: [processColumn, { ...amount('Peak', (row) => row.taken), share: true },
      moment('At', (row) => row.taken_ns),
      amount('In use at most', (row) => row.live), amount('Needed at most', (row) => row.needed),
      amount('At its end', (row) => row.end),
      number('Refused', (row) => row.refusals),
      words('Ended', (row) => recording.processes[row.process]?.end ?? '')] },
  { name: 'Threads', about: 'What each thread allocated, and released, of its own and of others.',
    rows: (device) => recording.threads.filter((row) => row.device === device.device), sort: 'Allocated',
    columns: [words('Thread', (row) => String(row.thread || '?')), processColumn,
      { ...amount('Allocated', (row) => row.allocated), share: true }, number('Times', (row) => row.allocations),
      amount('Released', (row) => row.released), number('Releases', (row) => row.releases)] },
  { name: 'Pools', about: 'What pools had reserved, and how much of that nobody used when that was worst.',
    rows: (device) => recording.pools.filter((row) => row.device === device.device), sort: 'Unused at worst',
    columns: [processColumn, words('Pool', (row) => row.owner), amount('Reserved at most', (row) => row.peak),
      { ...amount('Unused at worst', (row) => row.unused), share: true },
      moment('At', (row) => row.worst_ns), amount('Reserved at the end', (row) => row.end_reserved),
      amount('In use then', (row) => row.end_live), number('Allocations', (row) => row.allocations)] },
  { name: 'Refusals', about: 'Requests that were refused, and what would have helped.',
    rows: (device) => recording.refusals.filter((row) => row.device === device.device), sort: 'At', up: true,
    columns: [moment('At', (row) => row.ns), processColumn, words('Call', (row) => row.api),
      amount('Asked', (row) => row.asked), amount('Held', (row) => row.held), amount('Cap', (row) => row.cap),
      words('Refused by', (row) => reasons[row.reason] ?? ''),
      { ...words('What would have helped', (row) => row.advice), kind: 'wide' }] },
  { name: 'Sizes', about: 'How large allocations were.',
    rows: (device) => device.sizes.map(([exponent, times, sum]) => ({ exponent, times, sum })), sort: 'From', up: true,
    columns: [amount('From', (row) => 2 ** row.exponent), amount('Below', (row) => 2 ** (row.exponent + 1)),
      { ...number('Allocations', (row) => row.times), share: true },
      { ...amount('Together', (row) => row.sum), share: true }] },
  { name: 'Marks', about: 'What the recorder noted.', rows: () => recording.marks, sort: 'At', up: true,
    columns: [moment('At', (row) => row.ns), processColumn, { ...words('Note', (row) => row.text), kind: 'wide' }] },
];
