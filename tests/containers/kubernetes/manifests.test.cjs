// Every file by the published types of the Kubernetes API, in which an unknown field is an error.
'use strict'
const assert = require('node:assert')
const { execFileSync } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')
const test = require('node:test')
const { admit, built, folder, modules, yaml } = require('./cluster.cjs')

// The mutating policy is younger than the types: it shares all but its mutations with the validating one.
const preamble = `
import type { IPod, IConfigMap, INamespace } from 'kubernetes-models/v1'
import type { IDaemonSet } from 'kubernetes-models/apps/v1'
import type { IValidatingAdmissionPolicy, IValidatingAdmissionPolicyBinding }
  from 'kubernetes-models/admissionregistration.k8s.io/v1'
type Policy = NonNullable<IValidatingAdmissionPolicy['spec']>
type Mutating = 'admissionregistration.k8s.io/v1' | 'admissionregistration.k8s.io/v1beta1'
interface IMutatingAdmissionPolicy {
  apiVersion: Mutating, kind: 'MutatingAdmissionPolicy', metadata: IPod['metadata'],
  spec: Pick<Policy, 'failurePolicy' | 'matchConstraints' | 'matchConditions' | 'variables'> & {
    reinvocationPolicy: 'Never' | 'IfNeeded',
    mutations: { patchType: 'ApplyConfiguration', applyConfiguration: { expression: string } }[]
  }
}
interface IMutatingAdmissionPolicyBinding {
  apiVersion: Mutating, kind: 'MutatingAdmissionPolicyBinding', metadata: IPod['metadata'], spec: { policyName: string }
}
type Partly<T> = T extends (infer E)[] ? Partly<E>[] : T extends object ? { [K in keyof T]?: Partly<T[K]> } : T
`

function filesOf(below) {
  return fs.readdirSync(path.join(folder, below)).map((name) => path.join(folder, below, name))
}

// The compiler's complaints about objects that are said to be of these types.
function complaints(typed) {
  const file = path.join(process.env.NPM_FOLDER, 'objects.ts')
  fs.writeFileSync(file, preamble + typed.map(([type, object], i) =>
    `export const object${i}: ${type} = ${JSON.stringify(object, null, 1)}\n`).join(''))
  try {
    execFileSync(process.execPath, [modules.resolve('typescript/lib/tsc.js'), '--noEmit', '--strict', '--skipLibCheck',
      '--moduleResolution', 'node', '--module', 'commonjs', file], { encoding: 'utf8' })
    return ''
  } catch (error) {
    return error.stdout
  }
}

test('every file and overlay has the form of the API', () => {
  const pods = filesOf('pods').flatMap((file) => yaml.loadAll(fs.readFileSync(file, 'utf8')))
  const plugins = filesOf('plugins').flatMap((file) => yaml.loadAll(fs.readFileSync(file, 'utf8')))
  const base = built('base')
  const objects = [...base, ...built('v1beta1'), ...pods, ...plugins]
  assert.ok(objects.length > 15)
  const configurations = pods.flatMap((pod) => admit(base, pod).configurations)
  assert.ok(configurations.length > 4)
  assert.equal(complaints([...objects.map((each) => [`I${each.kind}`, each]),
    ...configurations.map((each) => ['Partly<IPod>', each])]), '')
  // And it would have told.
  for (const [type, wrong] of [['IPod', { ...pods[0], specs: {} }],
    ['Partly<IPod>', { spec: { containers: [{ name: 'x', volumeMount: [] }] } }]]) {
    assert.match(complaints([[type, wrong]]), /specs|volumeMount/)
  }
})

test('the pods that are shown are admitted, and capped unless their image does it', () => {
  for (const file of filesOf('pods')) {
    const pod = yaml.load(fs.readFileSync(file, 'utf8'))
    const { pod: made, message } = admit(built('base'), pod)
    assert.equal(message, undefined, file)
    const limit = made.spec.containers[0].env?.find((each) => each.name === 'FRACGPU_MEMORY_LIMIT')
    assert.equal(limit === undefined, path.basename(file) === 'image.yaml', file)
  }
})

test('every file says which version of a cluster it needs', () => {
  for (const below of ['base', 'v1beta1', 'pods', 'plugins']) {
    for (const file of filesOf(below)) {
      assert.match(fs.readFileSync(file, 'utf8').split('\napiVersion')[0], /Kubernetes 1\.\d\d/, file)
    }
  }
})

test('the node part and the policies agree on where things are', () => {
  const text = JSON.stringify(built('base'))
  for (const file of ['libfracgpu.so', 'ld.so.preload']) assert.ok(text.includes(`/var/lib/fracgpu/${file}`), file)
  const daemon = built('base').find((each) => each.kind === 'DaemonSet').spec.template.spec
  assert.deepEqual(daemon.volumes.map((each) => each.hostPath.path), ['/var/lib/fracgpu', '/etc/cdi'])
  const sharing = yaml.load(yaml.load(fs.readFileSync(path.join(folder, 'plugins/time-slicing.yaml'), 'utf8'))
    .data['config.yaml'])
  assert.equal(sharing.version, 'v1')
  assert.ok(sharing.sharing.timeSlicing.resources.every((each) => Number.isInteger(each.replicas)))
})
