{{/* Written by scripts/build_charts.py from dovetail.install.rbac. */}}
{{- define "dovetail.rules.cluster" -}}
# What is to be scheduled, and where.
- apiGroups: [""]
  resources: [pods, nodes, namespaces, persistentvolumes, persistentvolumeclaims]
  verbs: [list, watch]
# Overhead of each new node.
- apiGroups: ["apps"]
  resources: [daemonsets]
  verbs: [list, watch]
# Volume topology and attachment limits.
- apiGroups: ["storage.k8s.io"]
  resources: [storageclasses, csinodes]
  verbs: [list, watch]
# A drained node waits until its volumes are detached.
- apiGroups: ["storage.k8s.io"]
  resources: [volumeattachments]
  verbs: [list, watch]
# Which pods may be evicted, and which preempt others.
- apiGroups: ["policy"]
  resources: [poddisruptionbudgets]
  verbs: [list, watch]
# Priorities of pods.
- apiGroups: ["scheduling.k8s.io"]
  resources: [priorityclasses]
  verbs: [list, watch]
# How many pods of a workload are still to come.
- apiGroups: ["apps"]
  resources: [replicasets, statefulsets]
  verbs: [get]
# The same, of ReplicationControllers.
- apiGroups: [""]
  resources: [replicationcontrollers]
  verbs: [get]
# The same, of Jobs.
- apiGroups: ["batch"]
  resources: [jobs]
  verbs: [get]
{{- if .Values.settings.schedulerConfig }}
# Selectors of the scheduler's default spread constraints.
- apiGroups: ["apps"]
  resources: [replicasets, statefulsets]
  verbs: [list, watch]
{{- end }}
# Labels, taints and finalizers of nodes; nodes whose instance has ended are removed.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, patch, delete]
# Drain: eviction under the budgets.
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
# Drain past the grace period of the NodeClaim.
- apiGroups: [""]
  resources: [pods]
  verbs: [delete]
{{- if eq (default "bind" .Values.settings.place) "bind" }}
# Pods are bound to the node that was planned for them.
- apiGroups: [""]
  resources: [pods/binding]
  verbs: [create]
{{- end }}
{{- if eq (default "bind" .Values.settings.place) "nominate" }}
# Pods are nominated for the node that was planned for them.
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
{{- end }}
{{- if contains "PodDeletionCostManagement=true" (include "dovetail.featureGates" .) }}
# Pod deletion cost, by the feature gate PodDeletionCostManagement.
- apiGroups: [""]
  resources: [pods]
  verbs: [patch]
{{- end }}
# Events.
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
# Which pods Cluster Autoscaler grows a node group for.
- apiGroups: [""]
  resources: [events]
  verbs: [list, watch]
# NodeClaims are ours from launch to termination.
- apiGroups: ["karpenter.sh"]
  resources: [nodeclaims]
  verbs: [get, list, watch, create, patch, delete]
# NodePools: hashes, and those derived from Provisioners.
- apiGroups: ["karpenter.sh"]
  resources: [nodepools]
  verbs: [get, list, watch, create, patch]
# Overlays of prices and capacity.
- apiGroups: ["karpenter.sh"]
  resources: [nodeoverlays]
  verbs: [list, watch]
# Conditions and counters.
- apiGroups: ["karpenter.sh"]
  resources: [nodeclaims/status, nodepools/status]
  verbs: [patch]
# EC2NodeClasses: hashes and finalizers, and those derived from AWSNodeTemplates.
- apiGroups: ["karpenter.k8s.aws"]
  resources: [ec2nodeclasses]
  verbs: [get, list, watch, create, patch]
# Discovered AMIs, subnets and groups.
- apiGroups: ["karpenter.k8s.aws"]
  resources: [ec2nodeclasses/status]
  verbs: [patch]
# The kinds of v1alpha5.
- apiGroups: ["karpenter.sh"]
  resources: [provisioners]
  verbs: [list, watch]
# Their status.
- apiGroups: ["karpenter.sh"]
  resources: [provisioners/status]
  verbs: [patch]
# The kinds of v1alpha1.
- apiGroups: ["karpenter.k8s.aws"]
  resources: [awsnodetemplates]
  verbs: [list, watch]
# Their status.
- apiGroups: ["karpenter.k8s.aws"]
  resources: [awsnodetemplates/status]
  verbs: [patch]
# Machines show NodeClaims to v1alpha5 clients.
- apiGroups: ["karpenter.sh"]
  resources: [machines]
  verbs: [create, patch]
# Their status.
- apiGroups: ["karpenter.sh"]
  resources: [machines/status]
  verbs: [patch]
{{- if include "dovetail.webhookEnabled" . }}
# The webhook writes its certificate into the definitions.
- apiGroups: ["apiextensions.k8s.io"]
  resources: [customresourcedefinitions]
  resourceNames: [nodepools.karpenter.sh, nodeclaims.karpenter.sh, ec2nodeclasses.karpenter.k8s.aws]
  verbs: [get, patch]
{{- end }}
{{- end }}
{{- define "dovetail.rules.namespace" -}}
# Leader election: the lease is made once.
- apiGroups: ["coordination.k8s.io"]
  resources: [leases]
  verbs: [create]
# Leader election: only this lease is read and renewed.
- apiGroups: ["coordination.k8s.io"]
  resources: [leases]
  resourceNames: [karpenter-leader-election]
  verbs: [get, update]
# History of decisions.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, patch, delete]
{{- if include "dovetail.webhookEnabled" . }}
# The webhook's certificate.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
{{- end }}
{{- if include "dovetail.webhookEnabled" . }}
# The webhook's certificate, and no other secret.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [dovetail-webhook-certificate]
  verbs: [get, update]
{{- end }}
{{- end }}
{{- define "dovetail.rules.kubeSystem" -}}
# Whether the node role is mapped, before a node waits in vain.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [aws-auth]
  verbs: [get]
{{- end }}
{{- define "dovetail.rules.admin" -}}
- apiGroups: ["karpenter.sh"]
  resources: [nodepools, nodepools/status, nodeclaims, nodeclaims/status, nodeoverlays, nodeoverlays/status, provisioners, provisioners/status, machines, machines/status]
  verbs: [get, list, watch, create, delete, update, patch]
- apiGroups: ["karpenter.k8s.aws"]
  resources: [ec2nodeclasses, ec2nodeclasses/status, awsnodetemplates, awsnodetemplates/status]
  verbs: [get, list, watch, create, delete, update, patch]
{{- end }}
