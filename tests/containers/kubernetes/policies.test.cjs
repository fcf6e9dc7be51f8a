// A table of pods, and what becomes of each.
'use strict'
const assert = require('node:assert')
const { execFileSync } = require('node:child_process')
const test = require('node:test')
const { admit, built } = require('./cluster.cjs')

const pod = (labels, more = {}) => ({
  apiVersion: 'v1', kind: 'Pod',
  metadata: { name: 'p', ...(labels && { labels }), ...more.metadata },
  spec: { containers: [{ name: 'a', image: 'x' }], ...more.spec }
})
const kai = (annotations, labels) => pod(labels, { metadata: { annotations }, spec: { schedulerName: 'kai-scheduler' } })
const memory = (text) => pod({ 'fracgpu.dev/memory': text })
const fraction = (text) => pod({ 'fracgpu.dev/fraction': text })
const limitOf = (container) => container.env?.find((each) => each.name === 'FRACGPU_MEMORY_LIMIT')?.value

const capped = [
  [memory('8GiB'), '8GiB'], [memory('512MiB'), '512MiB'], [memory('1.5GiB'), '1.5GiB'], [memory('100GiB'), '100GiB'],
  [fraction('0.500'), '0.500'], [fraction('0.125'), '0.125'], [fraction('0.875'), '0.875'], [fraction('0.5'), '0.5'],
  [fraction('0.33'), '0.33'],
  [pod({ 'clearml-injector/fraction': '0.250' }), '0.250'],
  [kai({ 'gpu-fraction': '0.5' }), '0.5'], [kai({ 'gpu-memory': '2000' }), '2000MiB'], [kai({ 'gpu-fraction': '1.0' }), '1.0'],
  [kai({ 'gpu-fraction': '0.5' }, { 'fracgpu.dev/memory': '4GiB' }), '4GiB'],
  [kai({ 'gpu-fraction': '.5' }, { 'fracgpu.dev/memory': '4GiB' }), '4GiB'],
  [pod({ 'fracgpu.dev/memory': '8GiB', app: 'x' }), '8GiB']
]

const untouched = [
  pod(), pod({}), pod({ app: 'x' }), pod(null, { metadata: { annotations: { 'gpu-fraction': '0.5' } } }),
  pod(null, { metadata: { annotations: { 'gpu-memory': 'lots' } }, spec: { schedulerName: 'default-scheduler' } }),
  kai({}), kai({ other: 'x' }), pod({ 'fracgpu.example/memory': '8GiB' })
]

const refused = [
  ...['8', '8gb', '8GB', '8G', 'GiB', '0GiB', '0.0GiB', '-1GiB', '8 GiB', '1.2345GiB', '50', '0.5', '', '8GiBx', '1e3GiB',
    '99999999999999999GiB'].map((text) => [memory(text), `label fracgpu.dev/memory: '${text}' is not understood; write a size`]),
  ...['0.5x', '0.124', '0.876', '1', '0', '1.0', '.5', '0.', '50', '0.5000', '-0.5', '', '0,5'].map((text) =>
    [fraction(text), `label fracgpu.dev/fraction: '${text}' is not understood; write a share`]),
  [pod({ 'clearml-injector/fraction': '2' }), "label clearml-injector/fraction: '2' is not understood"],
  [pod({ 'fracgpu.dev/memory': '8GiB', 'fracgpu.dev/fraction': '0.5' }), 'a pod has one cap'],
  [pod({ 'clearml-injector/fraction': '0.5', 'fracgpu.dev/fraction': '0.5' }), 'a pod has one cap'],
  [pod({ 'fracgpu.dev/memroy': '8GiB' }), 'a label of fracgpu.dev is unknown'],
  [pod({ 'fracgpu.dev/host-namespaces': 'true' }), 'label fracgpu.dev/host-namespaces'],
  [pod({ 'fracgpu.dev/memory': '8GiB', 'fracgpu.dev/host-namespaces': 'yes' }), 'label fracgpu.dev/host-namespaces'],
  [kai({ 'gpu-memory': '2000MiB' }), "annotation gpu-memory: '2000MiB' is not understood"],
  [kai({ 'gpu-memory': '0' }), "annotation gpu-memory: '0' is not understood"],
  ...['2', '0', '0.0', '.5', '-0.5', '1.5', 'half'].map((text) =>
    [kai({ 'gpu-fraction': text }), `annotation gpu-fraction: '${text}' is not understood`])
]

for (const overlay of ['base', 'v1beta1']) {
  const objects = built(overlay)

  test(`${overlay}: pods with a sound label get the library, the limit and one name for all containers`, () => {
    for (const [given, limit] of capped) {
      const { pod: made, message } = admit(objects, given)
      assert.equal(message, undefined, JSON.stringify(given.metadata))
      assert.equal(limitOf(made.spec.containers[0]), limit)
      assert.deepEqual(made.spec.containers[0].env[1],
        { name: 'FRACGPU_TENANT', valueFrom: { fieldRef: { fieldPath: 'metadata.uid' } } })
      assert.deepEqual(made.spec.containers[0].volumeMounts.map((each) => [each.mountPath, each.readOnly]),
        [['/usr/lib/libfracgpu.so', true], ['/etc/ld.so.preload', true]])
      assert.deepEqual(made.spec.volumes.map((each) => each.hostPath), [
        { path: '/var/lib/fracgpu/libfracgpu.so', type: 'File' }, { path: '/var/lib/fracgpu/ld.so.preload', type: 'File' }])
      assert.equal(made.spec.hostPID, undefined)
      assert.equal(made.spec.hostIPC, undefined)
      // The words of the label are words of the library.
      execFileSync(process.env.FRACGPU, ['cdi', 'generate', '--library=/x', '--output', '-',
        limit.endsWith('B') ? '--memory' : '--fraction', limit])
    }
  })

  test(`${overlay}: other pods are left alone`, () => {
    for (const given of untouched) assert.deepEqual(admit(objects, given), { pod: given, configurations: [] })
  })

  test(`${overlay}: a wrong value is refused, and the message says what is right`, () => {
    for (const [given, reason] of refused) {
      const { message } = admit(objects, given)
      assert.ok(message?.includes(reason), `${JSON.stringify(given.metadata)}: ${message}, not: ${reason}`)
    }
  })

  test(`${overlay}: what a pod has already is kept, and cannot raise the cap`, () => {
    const given = pod({ 'fracgpu.dev/memory': '8GiB', 'fracgpu.dev/host-namespaces': 'true' }, {
      spec: {
        volumes: [{ name: 'data', emptyDir: {} }],
        initContainers: [{ name: 'i', image: 'x' }],
        containers: [
          { name: 'a', image: 'x', env: [{ name: 'HOME', value: '/h' }, { name: 'FRACGPU_MEMORY_LIMIT', value: '80GiB' }],
            volumeMounts: [{ name: 'data', mountPath: '/data' }] },
          { name: 'b', image: 'y', args: ['z'] }]
      }
    })
    const { pod: made } = admit(objects, given)
    const [a, b] = made.spec.containers
    assert.deepEqual(a.env.map((each) => each.name), ['HOME', 'FRACGPU_MEMORY_LIMIT', 'FRACGPU_TENANT'])
    assert.deepEqual([a, b, made.spec.initContainers[0]].map(limitOf), ['8GiB', '8GiB', '8GiB'])
    assert.deepEqual(a.volumeMounts.map((each) => each.mountPath), ['/data', '/usr/lib/libfracgpu.so', '/etc/ld.so.preload'])
    assert.deepEqual(b.args, ['z'])
    assert.equal(made.spec.initContainers[0].volumeMounts.length, 2)
    assert.deepEqual(made.spec.volumes.map((each) => each.name), ['data', 'fracgpu-library', 'fracgpu-preload'])
    assert.equal(made.spec.hostPID && made.spec.hostIPC, true)
    assert.deepEqual(admit(objects, made).pod, made, 'called again, it changes nothing')
  })

  test(`${overlay}: a cap is not changed by relabelling a pod`, () => {
    const was = admit(objects, memory('8GiB')).pod
    const relabelled = (labels) => ({ ...was, metadata: { ...was.metadata, labels } })
    assert.equal(admit(objects, relabelled({ 'fracgpu.dev/memory': '8GiB', app: 'x' }), was).message, undefined)
    for (const labels of [{ 'fracgpu.dev/memory': '9GiB' }, {}, { 'fracgpu.dev/fraction': '0.5' }]) {
      assert.match(admit(objects, relabelled(labels), was).message, /a pod's cap is set when it is made/)
    }
    assert.match(admit(objects, memory('8GiB'), pod()).message, /a pod's cap is set when it is made/)
    assert.equal(admit(objects, pod({ a: 'b' }), pod()).message, undefined)
    const before = memory('made before the policy was there')
    const finalized = { ...before, metadata: { ...before.metadata, finalizers: [] } }
    assert.equal(admit(objects, finalized, before).message, undefined)
  })
}
