"""Windows: one PowerShell block, the user's lines first."""

from __future__ import annotations

from dovetail.cloud.aws.userdata.boot import Boot
from dovetail.cloud.aws.userdata.linux import kubelet_flags


def powershell(boot: Boot) -> str:
    kubelet = dict(boot.kubelet)
    if boot.max_pods is not None:
        kubelet["maxPods"] = boot.max_pods
    extra = " ".join(flag.replace('"', "") for flag in kubelet_flags(boot, kubelet))
    call = (
        f'& $EKSBootstrapScriptFile -EKSClusterName "{boot.cluster_name}" -APIServerEndpoint "{boot.endpoint}"'
        f' -Base64ClusterCA "{boot.ca_bundle}" -KubeletExtraArgs "{extra}"'
    )
    if dns := boot.dns():
        call += f' -DNSClusterIP "{dns}"'
    lines = ["<powershell>"]
    if boot.custom:
        lines.append(boot.custom.strip("\n"))
    lines.append('[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"')
    lines += [call, "</powershell>"]
    return "\n".join(lines)
