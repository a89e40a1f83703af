{{- /* Labels of every object. */}}
{{- define "kube-sync.labels" -}}
{{- $labels := dict "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version) -}}
{{- $_ := set $labels "app.kubernetes.io/instance" .Release.Name -}}
{{- $_ := set $labels "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .Release.Service -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.labels) $labels) -}}
{{- end }}

{{- /* And of what the Prometheus operator selects by its labels. */}}
{{- define "kube-sync.prometheusLabels" -}}
{{- toYaml (mergeOverwrite (include "kube-sync.labels" . | fromYaml) .Values.prometheus.labels) -}}
{{- end }}

{{- /* What helm uninstall leaves: policies of users, and records. */}}
{{- define "kube-sync.kept" -}}
helm.sh/resource-policy: keep
{{- end }}

{{- /* The configuration file: that of the manifests, and the keys of the value `config`. */}}
{{- define "kube-sync.config" -}}
{{- $base := include "kube-sync.baseConfig" . | fromYaml -}}
{{- toYaml (mergeOverwrite $base (deepCopy .Values.config)) -}}
{{- end }}

{{- /* What differs between installations, in variables: of keys that `config` does not name, since a
variable overrides the file. */}}
{{- define "kube-sync.variables" -}}
{{- $config := .Values.config -}}
{{- $found := dict -}}
{{- if not (hasKey (default dict $config.remediate) "mode") -}}
{{- $_ := set $found "KUBE_SYNC_REMEDIATE_MODE" "enforce" -}}
{{- end -}}
{{- $systems := list -}}
{{- if .Values.scheduling.enabled }}{{ $systems = append $systems "scheduling" }}{{ end -}}
{{- if .Values.metadata.enabled }}{{ $systems = append $systems "metadata" }}{{ end -}}
{{- if and $systems (not (hasKey $config "builtin")) -}}
{{- $_ := set $found "KUBE_SYNC_BUILTIN" (printf "[%s]" (join ", " $systems)) -}}
{{- end -}}
{{- if and .Values.openReports.enabled (not (hasKey (default dict (default dict $config.remediate).openreports) "enabled")) -}}
{{- $_ := set $found "KUBE_SYNC_REMEDIATE_OPENREPORTS_ENABLED" "true" -}}
{{- end -}}
{{- if .Values.traces.enabled -}}
{{- $_ := set $found "OTEL_EXPORTER_OTLP_ENDPOINT" .Values.traces.endpoint -}}
{{- if not (hasKey (default dict (default dict $config.observe).tracing) "enabled") -}}
{{- $_ := set $found "KUBE_SYNC_OBSERVE_TRACING_ENABLED" "true" -}}
{{- end -}}
{{- end -}}
{{- if and (ne .Release.Namespace "kube-sync") (not (hasKey (default dict $config.coordination) "namespace")) -}}
{{- $_ := set $found "KUBE_SYNC_COORDINATION_NAMESPACE" .Release.Namespace -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{- /* The tag of the image of kube-sync: a release is published as `v` and its version. */}}
{{- define "kube-sync.tag" -}}
{{ default (printf "v%s" .Chart.AppVersion) .Values.image.tag }}
{{- end }}

{{- /* An image by its digest, or else by its tag. */}}
{{- define "kube-sync.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ default (include "kube-sync.tag" .root) .image.tag }}
{{- end -}}
{{- end }}

{{- define "kube-sync.pullPolicy" -}}
{{- with .pullPolicy }}imagePullPolicy: {{ . }}{{ end -}}
{{- end }}

{{- /* What tells Jobs apart. Not the revision alone: a release that was removed after a failed upgrade leaves its
Job, and what renders the chart without Helm's history always has revision 1. */}}
{{- define "kube-sync.revision" -}}
{{ .Release.Revision }}-{{ printf "%s %s" .Chart.Version (toYaml .Values) | sha256sum | trunc 8 }}
{{- end }}

{{- /* New pods whenever the configuration changes. */}}
{{- define "kube-sync.checksum" -}}
checksum/config: {{ include (print .Template.BasePath "/config.yaml") . | sha256sum }}
{{- end }}

{{- define "kube-sync.podAnnotations" -}}
{{- with merge (dict) .of.podAnnotations .root.Values.podAnnotations }}{{ toYaml . }}{{ end -}}
{{- end }}

{{- define "kube-sync.podLabels" -}}
{{- with merge (dict) .of.podLabels .root.Values.podLabels }}{{ toYaml . }}{{ end -}}
{{- end }}

{{- /* Where pods run: as their workload says, or else as all. */}}
{{- define "kube-sync.pod" -}}
{{- $of := .of -}}
{{- $values := .root.Values -}}
{{- $found := dict -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" -}}
{{- with default (index $values $key) (index $of $key) }}{{ $_ := set $found $key . }}{{ end -}}
{{- end -}}
{{- with $values.imagePullSecrets }}{{ $_ := set $found "imagePullSecrets" . }}{{ end -}}
{{- with $found }}{{ toYaml . }}{{ end -}}
{{- end }}

{{- /* More items of a list. */}}
{{- define "kube-sync.items" -}}
{{- with . }}{{ toYaml . }}{{ end -}}
{{- end }}

{{- /* Whose ConfigMaps the webhook leaves out: those of policies. */}}
{{- define "kube-sync.policyNamespaces" -}}
{{- toYaml (default (list "kube-federation-scheduling-policy") (default dict .Values.config.policies).namespaces) -}}
{{- end }}

{{- /* Host and port of the collector of traces. */}}
{{- define "kube-sync.collector" -}}
{{- (urlParse .Values.traces.endpoint).host -}}
{{- end }}

{{- /* The way to it: to its namespace, if it is a Service, and nowhere, if it runs in the pod. */}}
{{- define "kube-sync.collectorEgress" -}}
{{- $url := urlParse .Values.traces.endpoint -}}
{{- if and .Values.traces.enabled (not (has $url.hostname (list "localhost" "127.0.0.1"))) -}}
- ports:
  - {protocol: TCP, port: {{ trimPrefix (printf "%s:" $url.hostname) $url.host }}}
{{- if regexMatch "^[^.]+[.][^.]+[.]svc([.]|$)" $url.hostname }}
  to:
  - namespaceSelector:
      matchLabels:
        kubernetes.io/metadata.name: {{ index (splitList "." $url.hostname) 1 }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "kube-sync.tcpPorts" -}}
{{- range $number, $port := . }}
- {protocol: TCP, port: {{ $port }}}
{{- end -}}
{{- end }}

{{- define "kube-sync.storageClass" -}}
{{- with .Values.ledger.storageClassName }}storageClassName: {{ . }}{{ end -}}
{{- end }}
