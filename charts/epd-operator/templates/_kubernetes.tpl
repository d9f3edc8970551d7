{{- /*
Kubernetes 1.30 is the first with the preStop action `sleep` on by default (KEP-3960); every engine pod has one. Tested
here and not by `kubeVersion` of Chart.yaml, which also refuses clusters built from source, whose version is no semver.
*/}}
{{- define "epd-operator.requireKubernetes" -}}
{{- if regexMatch "^v?1[.]([0-9]|1[0-9]|2[0-9])([.]|$)" .Capabilities.KubeVersion.Version }}
{{- fail (printf "epd-operator needs Kubernetes 1.30 or later; this cluster has %s" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- end }}
