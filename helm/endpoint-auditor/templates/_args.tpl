{{- /* The flags of the server, without those that are the default of the program. */ -}}
{{- define "endpoint-auditor.serverArgs" -}}
{{- $of := .Values.auditor -}}
- --settle={{ $of.settle }}
- --max-endpoints-per-slice={{ int $of.maxEndpointsPerSlice }}
- --metrics-per-service={{ $of.metrics.perService }}
- --metrics-max-services={{ int $of.metrics.maxServices }}
{{- with $of.kubernetesVersion }}
- --kubernetes-version={{ . }}
{{- end }}
{{- with .Values.clusterName }}
- {{ printf "--cluster-name=%s" . | quote }}
{{- end }}
{{- with $of.namespaces }}
- --namespaces={{ join "," . }}
{{- end }}
{{- with $of.excludeNamespaces }}
- --exclude-namespaces={{ join "," . }}
{{- end }}
{{- if not $of.endpoints }}
- --no-endpoints
{{- end }}
{{- if include "endpoint-auditor.events" . }}
- --events
{{- end }}
{{- if include "endpoint-auditor.historyVolume" . }}
- --history=/var/lib/endpoint-auditor/history
- --history-size={{ .Values.history.size | default "2Gi" }}
- --history-age={{ .Values.history.age | default "7d" }}
{{- end }}
{{- if include "endpoint-auditor.webSecret" . }}
- --web.config.file=/etc/endpoint-auditor/web/web-config.yaml
{{- end }}
{{- if include "endpoint-auditor.authFilter" . }}
- --auth-filter
{{- end }}
{{- if .Values.service.metricsPort }}
- --metrics-listen=:{{ include "endpoint-auditor.metricsPort" . }}
{{- end }}
{{- if gt (int .Values.shards) 1 }}
- --shard=$(POD_INDEX)/{{ int .Values.shards }}
{{- end }}
{{- if .Values.agent.enabled }}
{{- if or $of.namespaces $of.excludeNamespaces }}
{{- fail "agent.enabled needs the whole cluster: no namespaces, no excludeNamespaces" }}
{{- end }}
{{- if not (include "endpoint-auditor.readsNodes" .) }}
{{- fail "agent.enabled needs rbac.nodes" }}
{{- end }}
- --agents={{ .Release.Namespace }}/{{ include "endpoint-auditor.agentName" . }}
- --agents-ca=/etc/endpoint-auditor/agents/ca.crt
{{- if eq .Values.agent.auth.mode "token" }}
- --agents-token-file=/etc/endpoint-auditor/agents/token
{{- else }}
- --agents-cert=/etc/endpoint-auditor/agents/tls.crt
- --agents-key=/etc/endpoint-auditor/agents/tls.key
- --agents-service-account={{ .Release.Namespace }}/{{ include "endpoint-auditor.agentName" . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* `true` or nothing. An upgrade with --reuse-values from 0.1.0 has no such value. */ -}}
{{- define "endpoint-auditor.readsNodes" -}}
{{- if ne (toString .Values.rbac.nodes) "false" }}true{{ end }}
{{- end -}}

{{- /* `true` or nothing. An upgrade with --reuse-values from 0.1.0 has no such value. */ -}}
{{- define "endpoint-auditor.events" -}}
{{- if (.Values.events | default dict).enabled }}true{{ end }}
{{- end -}}

{{- /* What the server may read in a namespace, or in all; and the only right to write. */ -}}
{{- define "endpoint-auditor.rules" -}}
- apiGroups: ['']
  resources: [pods, services{{ if .Values.auditor.endpoints }}, endpoints{{ end }}]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
{{- if include "endpoint-auditor.events" . }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
{{- end -}}

{{- /* An upgrade with --reuse-values from 0.1.0 has no such value. */ -}}
{{- define "endpoint-auditor.dataplane" -}}
{{- .Values.agent.dataplane | default "auto" -}}
{{- end -}}

{{- /* Maps are read with BPF, and nothing that reads rules. */ -}}
{{- define "endpoint-auditor.collectorSecurity" -}}
{{- $security := deepCopy (.Values.agent.securityContext | default dict) -}}
{{- if eq (include "endpoint-auditor.dataplane" .) "cilium" -}}
{{- $capabilities := $security.capabilities | default dict -}}
{{- $others := without ($capabilities.add | default list) "NET_ADMIN" "NET_RAW" "BPF" -}}
{{- $_ := set $capabilities "add" (prepend $others "BPF") -}}
{{- $_ := set $security "capabilities" $capabilities -}}
{{- end -}}
{{- toYaml $security -}}
{{- end -}}

{{- define "endpoint-auditor.agentArgs" -}}
- --listen=$(HOST_IP):{{ .Values.agent.port }}
- --node=$(NODE_NAME)
- --collector=/run/endpoint-auditor/collector.sock
- --interval={{ .Values.agent.interval }}
- --deadline={{ .Values.agent.deadline }}
- --max-size={{ .Values.agent.maxSize }}
- --tls-cert=/etc/endpoint-auditor/tls/tls.crt
- --tls-key=/etc/endpoint-auditor/tls/tls.key
{{- if eq .Values.agent.auth.mode "token" }}
- --token-file=/etc/endpoint-auditor/tls/token
{{- else }}
- --client-ca=/etc/endpoint-auditor/tls/{{ ternary "ca.crt" "client-ca.crt" (eq .Values.agent.auth.mode "cert-manager") }}
- --identity-token-file=/etc/endpoint-auditor/identity/token
{{- end }}
{{- if .Values.agent.proxyConfig }}
- --proxy-config=/etc/endpoint-auditor/kube-proxy/config.conf
{{- end }}
{{- end -}}
