"""The walk-throughs' own manifests."""

from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"

#: What the README begins with; the cluster of the tests has another name.
POOL = (EXAMPLES / "nodepool.yaml").read_text().replace("dovetail", "test-cluster")
INFLATE = (EXAMPLES / "inflate.yaml").read_text()
GIANT = (EXAMPLES / "giant.yaml").read_text()

NETWORK = """
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata:
  name: test-network
spec:
  taints:
    - key: networkNode
      value: "true"
      effect: NoSchedule
  labels:
    phase: test
    nodeType: network-node
  requirements:
    - key: "node.kubernetes.io/instance-type"
      operator: In
      values: ["c5n.4xlarge"]
    - key: "topology.kubernetes.io/zone"
      operator: In
      values: [ "ap-northeast-2a", "ap-northeast-2c" ]
    - key: "karpenter.sh/capacity-type"
      operator: In
      values: ["on-demand"]
  providerRef:
    name: enable-ipvs-test
  ttlSecondsAfterEmpty: 30
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata:
  name: enable-ipvs-test
spec:
  subnetSelector:
    karpenter.sh/discovery/test-cluster: '*'
  securityGroupSelector:
    aws:eks:cluster-name: "test-cluster"
  instanceProfile: KarpenterNodeInstanceProfile-test-cluster
  blockDeviceMappings:
    - deviceName: /dev/xvda
      ebs:
        volumeSize: 20Gi
        volumeType: gp3
        iops: 3000
        deleteOnTermination: true
        throughput: 125
  tags:
    service: network
  userData: |
    MIME-Version: 1.0
    Content-Type: multipart/mixed; boundary="BOUNDARY"

    --BOUNDARY
    Content-Type: text/x-shellscript; charset="us-ascii"

    #!/bin/bash
    sudo yum install -y ipvsadm

    --BOUNDARY--
"""

NGINX = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: nginx
  namespace: nginx
spec:
  replicas: 1
  selector:
    matchLabels:
      app: nginx
  template:
    metadata:
      labels:
        app: nginx
    spec:
      containers:
      - name: nginx
        image: nginx
        imagePullPolicy: IfNotPresent
      nodeSelector:
        nodeType: network-node
      tolerations:
      - effect: "NoSchedule"
        key: "networkNode"
        operator: "Equal"
        value: "true"
"""

UNMAPPED = """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata:
  name: stranger
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: StrangerRole
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: test-cluster}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: test-cluster}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: stranger
spec:
  template:
    metadata: {labels: {pool: stranger}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: stranger}
      requirements:
        - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
---
apiVersion: v1
kind: Pod
metadata: {name: stranded}
spec:
  nodeSelector: {pool: stranger}
  containers: [{name: c, image: pause, resources: {requests: {cpu: 100m}}}]
"""

ENI = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: eni
spec:
  template:
    metadata: {labels: {pool: eni}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: node.kubernetes.io/instance-type, operator: In, values: [t3.large, m5.large, m5.xlarge]}
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
---
apiVersion: v1
kind: Pod
metadata: {name: branch}
spec:
  nodeSelector: {pool: eni}
  containers:
    - name: c
      image: pause
      resources: {requests: {vpc.amazonaws.com/pod-eni: "1"}, limits: {vpc.amazonaws.com/pod-eni: "1"}}
"""
