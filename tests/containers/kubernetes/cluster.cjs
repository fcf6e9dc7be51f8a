// A cluster's admission of pods, as far as our two policies have a part in it: CEL by an evaluator that follows the
// language's own conformance tests, server-side apply by merging lists that have keys.
'use strict'
const { execFileSync } = require('node:child_process')
const { createRequire } = require('node:module')
const path = require('node:path')

const modules = createRequire(path.join(process.env.NPM_FOLDER, 'x.cjs'))
const { run, isCelError, isCelList, isCelMap } = modules('@bufbuild/cel')
const { strings } = modules('@bufbuild/cel/ext')
const yaml = modules('js-yaml')

const folder = path.join(__dirname, '../../../containers/kubernetes')

// What `kubectl apply -k` would send.
function built(overlay) {
  const text = execFileSync('kubectl', ['kustomize', path.join(folder, overlay)], { encoding: 'utf8' })
  return yaml.loadAll(text)
}

// The evaluator has no types of a cluster, so "Object.spec.volumes{name: x}" is made a map that says its type, which is
// compared with where it ends up.
function untyped(expression) {
  return expression
    .replace(/\bObject((?:\.[a-zA-Z]+)*)\{/g, (_, type) => `{"@type": "Object${type}", `)
    .replace(/, (\s*)\}/g, '$1}')
    .replace(/([{,]\s*)([a-zA-Z]+):(?=\s)/g, '$1"$2":')
}

function plain(value, where) {
  if (isCelList(value)) return [...value].map((each) => plain(each, where))
  if (!isCelMap(value)) return value
  const object = {}
  for (const [key, each] of value.entries()) {
    if (key !== '@type') object[key] = plain(each, `${where}.${key}`)
    else if (each !== where) throw new Error(`an ${each} where an ${where} belongs`)
  }
  return object
}

function evaluate(expression, inputs) {
  const found = run(untyped(expression), inputs, { funcs: strings })
  if (isCelError(found)) throw new Error(`${found.message} in: ${expression}`)
  return plain(found, 'Object')
}

// Variables are evaluated where they are used, so one that fails does no harm elsewhere.
function inputsOf(policy, pod, oldPod) {
  const variables = {}
  const inputs = { object: pod, oldObject: oldPod, request: { operation: oldPod ? 'UPDATE' : 'CREATE' }, variables }
  for (const { name, expression } of policy.spec.variables) {
    try {
      variables[name] = evaluate(expression, inputs)
    } catch (error) {
      if (!/no such|not found|key/.test(error.message)) throw error
    }
  }
  return inputs
}

const matches = (policy, pod, oldPod) =>
  policy.spec.matchConstraints.resourceRules.some((rule) => rule.operations.includes(oldPod ? 'UPDATE' : 'CREATE')) &&
  policy.spec.matchConditions.every(({ expression }) => evaluate(expression, { object: pod, oldObject: oldPod }))

// Lists of a pod that are merged by key, by the markers of the published API.
const keys = { volumes: 'name', containers: 'name', initContainers: 'name', env: 'name', volumeMounts: 'mountPath' }

function apply(onto, configuration, name) {
  if (Array.isArray(configuration)) {
    const merged = [...(onto ?? [])]
    for (const item of configuration) {
      const at = merged.findIndex((each) => each[keys[name]] === item[keys[name]])
      if (at < 0) merged.push(item)
      else merged[at] = apply(merged[at], item)
    }
    return merged
  }
  if (configuration === null || typeof configuration !== 'object') return configuration
  const merged = { ...onto }
  for (const [field, each] of Object.entries(configuration)) merged[field] = apply(merged[field], each, field)
  return merged
}

// The pod as it is stored, or why it is not: {pod, configurations} or {message}.
function admit(objects, pod, oldPod = null) {
  const cap = objects.find((each) => each.kind === 'MutatingAdmissionPolicy')
  const check = objects.find((each) => each.kind === 'ValidatingAdmissionPolicy')
  const configurations = []
  if (matches(cap, pod, oldPod)) {
    for (const { applyConfiguration } of cap.spec.mutations) {
      const configuration = evaluate(applyConfiguration.expression, inputsOf(cap, pod, oldPod))
      configurations.push(configuration)
      pod = apply(pod, configuration)
    }
  }
  if (matches(check, pod, oldPod)) {
    const inputs = inputsOf(check, pod, oldPod)
    for (const { expression, message, messageExpression } of check.spec.validations) {
      if (evaluate(expression, inputs) !== true) return { message: message ?? evaluate(messageExpression, inputs) }
    }
  }
  return { pod, configurations }
}

module.exports = { admit, built, folder, modules, yaml }
