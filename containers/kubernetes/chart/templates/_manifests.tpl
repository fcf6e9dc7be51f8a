{{- /* Every object of a manifest, changed by the values. */}}
{{- define "manifest" }}
{{- range $text := splitList "\n---\n" (.root.Files.Get .path) }}
{{- $object := fromYaml (print $text "\n") }}
{{- if not (and (eq $object.kind "Namespace") $.without_namespace) }}
{{- if eq $object.kind "DaemonSet" }}{{ include "change" (dict "pod" $object.spec.template.spec "values" $.root.Values) }}{{ end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Changes a pod's specification, and prints nothing. */}}
{{- define "change" }}
{{- range $name := list "imagePullSecrets" "runtimeClassName" "tolerations" }}
{{- with index $.values $name }}{{ $_ := set $.pod $name . }}{{ end }}
{{- end }}
{{- with .values.nodeAffinity }}{{ $_ := set $.pod "affinity" (dict "nodeAffinity" .) }}{{ end }}
{{- range $container := concat .pod.initContainers .pod.containers }}
{{- range $name := list "image" "imagePullPolicy" "resources" }}
{{- with index $.values $name }}{{ $_ := set $container $name . }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
