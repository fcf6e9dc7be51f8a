// node admitted.cjs LABELS: the pod of two containers with these labels as the cluster stores it, and the node's
// installation script, as JSON.
'use strict'
const { admit, built } = require('./cluster.cjs')

const objects = built('base')
const { pod } = admit(objects, {
  metadata: { name: 'p', labels: JSON.parse(process.argv[2]) },
  spec: { containers: [{ name: 'a', image: 'x' }, { name: 'b', image: 'x' }] }
})
const node = objects.find((each) => each.kind === 'DaemonSet').spec.template.spec
console.log(JSON.stringify({ pod: pod.spec, install: node.initContainers[0] }))
