{{- /* Made of manifests/config/config.yaml by `python -m tools.charting`; do not edit. */}}
{{- define "kube-sync.baseConfig" -}}
opa:
  url: https://localhost:8181
  ca_file: /run/tls/ca.crt
  token_file: /run/opa-token/token
decisions:
  listen: 127.0.0.1:9400
  url: http://127.0.0.1:9400/v1/decisions
  token_file: /run/decisions/token
  basis:
    listen: 0.0.0.0:9408
    cert_file: /run/tls/tls.crt
    key_file: /run/tls/tls.key
  ca_file: /run/tls/ca.crt
remediate:
  token_file: /run/remediation/token
placement:
  key_file: /run/notes/keys
admission:
  cert_file: /run/tls/tls.crt
  key_file: /run/tls/tls.key
  classes: 'on'
  registration:
    name: kube-sync-placement
    ca_file: /run/tls/ca.crt
{{- end }}
