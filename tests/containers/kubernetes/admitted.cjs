// node admitted.cjs LABELS|FILE: the pod in the file, or one of two containers with these labels, as the cluster stores
// it, and the node's installation script, as JSON.
'use strict'
const fs = require('node:fs')
const { admit, built, yaml } = require('./cluster.cjs')

const [given] = process.argv.slice(2)
const objects = built('base')
const { pod, message } = admit(objects, given.startsWith('{') ? {
  metadata: { name: 'p', labels: JSON.parse(given) },
  spec: { containers: [{ name: 'a', image: 'x' }, { name: 'b', image: 'x' }] }
} : yaml.load(fs.readFileSync(given, 'utf8')))
if (message) throw new Error(message)
const node = objects.find((each) => each.kind === 'DaemonSet').spec.template.spec
console.log(JSON.stringify({ pod: pod.spec, install: node.initContainers[0] }))
