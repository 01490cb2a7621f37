{{- define "endpoint-auditor.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 55 | trimSuffix "-" -}}
{{- end -}}

{{- /* Short enough for "-agent-client" after it. */ -}}
{{- define "endpoint-auditor.fullname" -}}
{{- $name := include "endpoint-auditor.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* The Secret with the configuration of the web server; nothing without one. */ -}}
{{- define "endpoint-auditor.webSecret" -}}
{{- with .Values.web -}}
{{- if and .basicAuthUsers .existingSecret }}
{{- fail "web: either basicAuthUsers or existingSecret" }}
{{- end }}
{{- if and .tls (not .existingSecret) }}
{{- fail "web.tls needs web.existingSecret, whose file names the certificate" }}
{{- end }}
{{- if .existingSecret }}{{ .existingSecret }}{{ else if .basicAuthUsers }}{{ include "endpoint-auditor.fullname" $ }}-web{{ end -}}
{{- end -}}
{{- end -}}

{{- /* Scheme of the probes of the server; an upgrade with --reuse-values has no such value. */ -}}
{{- define "endpoint-auditor.probeScheme" -}}
{{- if and .Values.web .Values.web.tls }}HTTPS{{ else }}HTTP{{ end }}
{{- end -}}

{{- /* `true` or nothing: whether the API server reviews tokens. */ -}}
{{- define "endpoint-auditor.authFilter" -}}
{{- if and .Values.web .Values.web.authFilter }}true{{ end }}
{{- end -}}

{{- /* `true` or nothing: whether agents prove their node by a token that the API server reviews. */ -}}
{{- define "endpoint-auditor.verifiesNodes" -}}
{{- if and .Values.agent.enabled (ne .Values.agent.auth.mode "token") }}true{{ end }}
{{- end -}}

{{- /* Name of the port of the page: that of the metrics, unless these have one of their own. */ -}}
{{- define "endpoint-auditor.pagePort" -}}
{{- if .Values.service.metricsPort }}page{{ else }}metrics{{ end }}
{{- end -}}

{{- /* Where the pod serves the metrics. */ -}}
{{- define "endpoint-auditor.metricsPort" -}}
{{- if .Values.service.metricsPort }}9467{{ else }}9465{{ end }}
{{- end -}}

{{- /*
The volume of the history: `emptyDir`, `claim` (of the chart), `templates` (a claim for each shard) or
`existing`; nothing without a history. An upgrade with --reuse-values from 0.1.0 has no such value.
*/ -}}
{{- define "endpoint-auditor.historyVolume" -}}
{{- $history := .Values.history | default dict -}}
{{- $claim := $history.claim | default dict -}}
{{- $sharded := gt (int .Values.shards) 1 -}}
{{- if and $claim.existingClaim $sharded }}
{{- fail "history.claim.existingClaim: each shard needs a claim of its own (history.claim.enabled)" }}
{{- end }}
{{- if $history.enabled -}}
{{- if $claim.existingClaim }}existing{{ else if not $claim.enabled }}emptyDir{{ else }}{{ ternary "templates" "claim" $sharded }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /*
A quarter more than the history: a checkpoint is complete before an old segment is removed, and the
search index has a journal while it is brought up to date.
*/ -}}
{{- define "endpoint-auditor.historyBytes" -}}
{{- $size := .Values.history.size | default "2Gi" -}}
{{- $mebibytes := regexFind "^[0-9]+" $size | int64 -}}
{{- if hasSuffix "Gi" $size }}{{ $mebibytes = mul $mebibytes 1024 }}{{ end -}}
{{- add $mebibytes (div (add $mebibytes 3) 4) }}Mi
{{- end -}}

{{- define "endpoint-auditor.historyClaim" -}}
accessModes: [ReadWriteOnce]
{{- with (.Values.history.claim | default dict).storageClass }}
storageClassName: {{ . | quote }}
{{- end }}
resources:
  requests:
    storage: {{ include "endpoint-auditor.historyBytes" . }}
{{- end -}}

{{- define "endpoint-auditor.agentName" -}}
{{- include "endpoint-auditor.fullname" . }}-agent
{{- end -}}

{{- define "endpoint-auditor.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "endpoint-auditor.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed without serviceAccount.create" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* What selects pods: never changes. Takes a list: the root and the component. */ -}}
{{- define "endpoint-auditor.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "endpoint-auditor.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- /*
Labels of an object. Takes a list: the root, the component, and labels of values or nothing. Those of
the selector and the version count before those of values. No label is there twice.
*/ -}}
{{- define "endpoint-auditor.labels" -}}
{{- $root := index . 0 -}}
{{- $more := dict -}}
{{- range rest . }}{{ if kindIs "map" . }}{{ $more = . }}{{ end }}{{ end -}}
{{- $own := dict "app.kubernetes.io/version" $root.Chart.AppVersion "app.kubernetes.io/managed-by" $root.Release.Service "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- $others := merge (dict) $more ($root.Values.commonLabels | default dict) -}}
{{- toYaml (merge (include "endpoint-auditor.selector" . | fromYaml) $own $others (dict "app.kubernetes.io/part-of" "endpoint-auditor")) }}
{{- end -}}

{{- /* Labels of a pod. Takes a list: the root, the component, and labels of values. */ -}}
{{- define "endpoint-auditor.podLabels" -}}
{{- $others := merge (dict) (index . 2 | default dict) ((index . 0).Values.commonLabels | default dict) -}}
{{- toYaml (merge (include "endpoint-auditor.selector" . | fromYaml) $others) }}
{{- end -}}

{{- /*
Takes a list: the root and the values of an image. Without a registry, the container runtime uses its
default one, or an image that is on the node.
*/ -}}
{{- define "endpoint-auditor.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := coalesce $image.registry $root.Values.global.imageRegistry $root.Values.image.registry -}}
{{- with $registry }}{{ . }}/{{ end -}}
{{ $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default (printf "v%s" $root.Chart.AppVersion) $image.tag }}{{ end -}}
{{- end -}}

{{- /* What a server takes, by the number of pods (docs/performance.md), with room to spare. */ -}}
{{- define "endpoint-auditor.resources" -}}
{{- $sizes := dict
  "small" (dict "requests" (dict "cpu" "50m" "memory" "224Mi") "limits" (dict "memory" "320Mi"))
  "medium" (dict "requests" (dict "cpu" "200m" "memory" "256Mi") "limits" (dict "memory" "512Mi"))
  "large" (dict "requests" (dict "cpu" "500m" "memory" "512Mi") "limits" (dict "memory" "1Gi"))
-}}
{{- toYaml (default (default dict (get $sizes .Values.clusterSize)) .Values.resources) -}}
{{- end -}}

{{- /* The Secret of the agents: what they show, and what they ask for. */ -}}
{{- define "endpoint-auditor.agentSecret" -}}
{{- default (include "endpoint-auditor.agentName" .) .Values.agent.auth.existingSecret -}}
{{- end -}}

{{- /* The Secret by which the server proves itself to the agents. */ -}}
{{- define "endpoint-auditor.clientSecret" -}}
{{- if eq .Values.agent.auth.mode "token" -}}
{{- include "endpoint-auditor.agentSecret" . -}}
{{- else -}}
{{- default (printf "%s-client" (include "endpoint-auditor.agentName" .)) .Values.agent.auth.existingClientSecret -}}
{{- end -}}
{{- end -}}

{{- /* The name in the certificate of the agents: that of their Service. */ -}}
{{- define "endpoint-auditor.agentHost" -}}
{{- include "endpoint-auditor.agentName" . }}.{{ .Release.Namespace }}.svc
{{- end -}}
