{{- define "epd-operator.crdName" -}}
epddeployments.epd.dev
{{- end }}

{{- /*
Who has the CustomResourceDefinition that is in the cluster: "" (nobody: it is absent, or this release's), else words for
people. `lookup` finds nothing in `helm template` and in Argo CD, where the CustomResourceDefinition is always rendered.
*/}}
{{- define "epd-operator.crdOwner" -}}
{{- $live := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" (include "epd-operator.crdName" .) }}
{{- if $live }}
{{- $annotations := $live.metadata.annotations | default dict }}
{{- $release := get $annotations "meta.helm.sh/release-name" }}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" }}
{{- if not $release }}
{{- "no Helm release" }}
{{- else if or (ne $release .Release.Name) (ne $namespace .Release.Namespace) }}
{{- printf "release %s in namespace %s" $release $namespace }}
{{- end }}
{{- end }}
{{- end }}

{{- /*
Whether to leave the CustomResourceDefinition as it is in the cluster ("true" or ""). Helm refuses to touch an object of
another release, and a kept CustomResourceDefinition still names the release that made it. So one that is not ours is
left alone while it serves this chart's schema, or that of a later release. An older one is rendered, and Helm then says
whose it is and stops before anything has changed: an operator must not run on a schema that lacks its fields.
*/}}
{{- define "epd-operator.crdLeft" -}}
{{- if include "epd-operator.crdOwner" . }}
{{- $live := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" (include "epd-operator.crdName" .) }}
{{- $ours := include "epd-operator.crd" . | fromYaml }}
{{- $version := get ($live.metadata.labels | default dict) "app.kubernetes.io/version" }}
{{- if eq (toJson $live.spec.versions) (toJson $ours.spec.versions) }}
{{- "true" }}
{{- else if regexMatch "^v?[0-9]+[.][0-9]+[.][0-9]+(-[0-9A-Za-z.-]+)?$" $version }}
{{- if gt ((semver $version).Compare (semver .Chart.AppVersion)) 0 }}
{{- "true" }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The generated CustomResourceDefinition with this release's labels and the keep policy merged in. */}}
{{- define "epd-operator.crd" -}}
{{- $crd := .Files.Get "files/epd.dev_epddeployments.yaml" | fromYaml }}
{{- if ne (dig "metadata" "name" "" $crd) (include "epd-operator.crdName" .) }}
{{- fail (printf "the chart is incomplete: files/epd.dev_epddeployments.yaml does not hold %s (run `make generate`)" (include "epd-operator.crdName" .)) }}
{{- end }}
{{- $labels := merge (include "epd-operator.labels" . | fromYaml) ($crd.metadata.labels | default dict) }}
{{- $annotations := $crd.metadata.annotations | default dict }}
{{- if .Values.crds.keep }}
{{- $_ := set $annotations "helm.sh/resource-policy" "keep" }}
{{- end }}
{{- $_ := set $crd.metadata "labels" $labels }}
{{- $_ := set $crd.metadata "annotations" $annotations }}
{{- toYaml $crd }}
{{- end }}
