{{- define "epd-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* 63 characters: the limit of a label value and of a Service's name. */}}
{{- define "epd-operator.fullname" -}}
{{- $name := include "epd-operator.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /*
Cluster-scoped objects carry the namespace in their name, so that releases of one name in two namespaces can live side
by side. A colon cannot occur in either part, so two different pairs never give one name.
*/}}
{{- define "epd-operator.clusterName" -}}
{{- printf "%s:%s" (include "epd-operator.fullname" .) .Release.Namespace }}
{{- end }}

{{- /* The metrics Service's name, where the suffix must fit into the 63 characters too. */}}
{{- define "epd-operator.metricsName" -}}
{{- printf "%s-metrics" (include "epd-operator.fullname" . | trunc 55 | trimSuffix "-") }}
{{- end }}

{{- define "epd-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "epd-operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: name the ServiceAccount to use, or set serviceAccount.create to true" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* Part of the Deployment's selector, which cannot be changed: nothing here may depend on the version. */}}
{{- define "epd-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "epd-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "epd-operator.labels" -}}
{{- $labels := include "epd-operator.selectorLabels" . | fromYaml }}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .Release.Service }}
{{- $_ := set $labels "app.kubernetes.io/part-of" "epd-operator" }}
{{- $_ := set $labels "app.kubernetes.io/version" (.Chart.AppVersion | replace "+" "_" | trunc 63) }}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") }}
{{- merge $labels .Values.commonLabels | toYaml }}
{{- end }}

{{- /* One image runs the operator, the proxy, the collector and the preflight check, so the operator is told its own reference. */}}
{{- define "epd-operator.image" -}}
{{- $repository := .Values.image.repository }}
{{- if not $repository }}
{{- fail "image.repository is not set: build the Dockerfile, push the image to where your nodes can pull it from, and install with --set image.repository=REGISTRY/epd-operator" }}
{{- end }}
{{- $tag := .Values.image.tag | default .Chart.AppVersion }}
{{- if .Values.image.digest }}
{{- printf "%s:%s@%s" $repository $tag .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository $tag }}
{{- end }}
{{- end }}

{{- /*
The operator's rights, equal to epd.controller.permissions (tests/chart compares them). Nothing here is cluster-scoped,
so the same rules serve a ClusterRole and the Roles of a namespaced install. There is no verb on Secrets.
*/}}
{{- define "epd-operator.rules" -}}
- apiGroups: [epd.dev]
  resources: [epddeployments]
  verbs: [get, list, patch, watch] # patch: for the operator's own finalizer
- apiGroups: [epd.dev]
  resources: [epddeployments/status]
  verbs: [patch]
# Whoever sets blockOwnerDeletion needs this where OwnerReferencesPermissionEnforcement is on, as on OpenShift.
- apiGroups: [epd.dev]
  resources: [epddeployments/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [configmaps, persistentvolumeclaims, serviceaccounts, services]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [apps]
  resources: [controllerrevisions, deployments]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [create, delete, get, list, patch, watch]
# The proxy finds its engines by watching pods, the collector the cache versions in use by reading what starts pods:
# their Roles grant only what stands here.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings, roles]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [get, list]
- apiGroups: [""]
  resources: [events]
  verbs: [create, get, list, patch]
{{- end }}
