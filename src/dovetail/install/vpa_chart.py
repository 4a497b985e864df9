"""The template of the Vertical Pod Autoscaler in the chart, from the same manifests as `dovetail manifests vpa`."""

from __future__ import annotations

from dovetail.autoscalers.vpa.manifests import manifests
from dovetail.install.sprig import dump_yaml

#: Stand for values in the manifests until they are templates.
_IMAGE, _TAG, _NAMESPACE = "image-of-the-chart", "tag-of-the-chart", "namespace-of-the-chart"
_HEAD = """\
{{- /* Written by scripts/build_charts.py. */ -}}
{{- if eq (toString .Values.vpa.enabled) "true" }}
{{- $image := include "dovetail.image" (dict "image" .Values.controller.image "appVersion" .Chart.AppVersion) }}
"""


def vpa_template() -> str:
    """The template; definitions stay when the release goes, because VerticalPodAutoscalers would go with them."""
    parts = []
    for body in manifests(_IMAGE, _TAG, _NAMESPACE):
        if body["kind"] == "CustomResourceDefinition":
            metadata = body["metadata"]
            kept = {**(metadata.get("annotations") or {}), "helm.sh/resource-policy": "keep"}
            body = {**body, "metadata": {**metadata, "annotations": kept}}
        text = dump_yaml(body).rstrip("\n")
        text = text.replace(f"{_IMAGE}:{_TAG}", "{{ $image }}").replace(_NAMESPACE, "{{ .Values.vpa.namespace }}")
        parts.append(f"---\n{text}\n")
    return _HEAD + "".join(parts) + "{{- end }}\n"
