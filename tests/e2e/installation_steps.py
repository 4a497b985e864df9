"""The installations of the walk-throughs, step by step, as they are typed. Only addresses differ.

`HELM` is the helm under test and `DOVETAIL_CHARTS` the lab's charts. A step is one or more commands; a test leaves a
command, a `--set` or a document of a manifest out and looks where its absence is reported.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

ENVIRONMENT = r"""
CLUSTER_NAME=$(aws eks list-clusters --query 'clusters[0]' --output text)
AWS_PARTITION="aws"
AWS_REGION="$(aws configure list | grep region | tr -s " " | cut -d" " -f3)"
OIDC_ENDPOINT="$(aws eks describe-cluster --name ${CLUSTER_NAME} --query "cluster.identity.oidc.issuer" --output text)"
AWS_ACCOUNT_ID=$(aws sts get-caller-identity --query 'Account' --output text)
"""

NODE_ROLE = r"""
echo '{
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {
                "Service": "ec2.amazonaws.com"
            },
            "Action": "sts:AssumeRole"
        }
    ]
}' > node-trust-policy.json
aws iam create-role \
    --role-name "KarpenterNodeRole-${CLUSTER_NAME}" \
    --assume-role-policy-document file://node-trust-policy.json
aws iam attach-role-policy \
    --role-name "KarpenterNodeRole-${CLUSTER_NAME}" \
    --policy-arn arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy

aws iam attach-role-policy \
    --role-name "KarpenterNodeRole-${CLUSTER_NAME}" \
    --policy-arn arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy

aws iam attach-role-policy \
    --role-name "KarpenterNodeRole-${CLUSTER_NAME}" \
    --policy-arn arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly

aws iam attach-role-policy \
    --role-name "KarpenterNodeRole-${CLUSTER_NAME}" \
    --policy-arn arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore
"""

INSTANCE_PROFILE = r"""
aws iam create-instance-profile \
    --instance-profile-name "KarpenterNodeInstanceProfile-${CLUSTER_NAME}"
aws iam add-role-to-instance-profile \
    --instance-profile-name "KarpenterNodeInstanceProfile-${CLUSTER_NAME}" \
    --role-name "KarpenterNodeRole-${CLUSTER_NAME}"
"""

CONTROLLER_ROLE = r"""
cat << EOF > controller-trust-policy.json
{
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {
                "Federated": "arn:aws:iam::${AWS_ACCOUNT_ID}:oidc-provider/${OIDC_ENDPOINT#*//}"
            },
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": {
                "StringEquals": {
                    "${OIDC_ENDPOINT#*//}:aud": "sts.amazonaws.com",
                    "${OIDC_ENDPOINT#*//}:sub": "system:serviceaccount:karpenter:karpenter"
                }
            }
        }
    ]
}
EOF
aws iam create-role \
    --role-name KarpenterControllerRole-${CLUSTER_NAME} \
    --assume-role-policy-document file://controller-trust-policy.json
"""

CONTROLLER_POLICY = r"""
cat << EOF > controller-policy.json
{
    "Statement": [
        {
            "Action": [
                "ssm:GetParameter",
                "ec2:DescribeImages",
                "ec2:RunInstances",
                "ec2:DescribeSubnets",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeLaunchTemplates",
                "ec2:DescribeInstances",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeInstanceTypeOfferings",
                "ec2:DescribeAvailabilityZones",
                "ec2:DeleteLaunchTemplate",
                "ec2:CreateTags",
                "ec2:CreateLaunchTemplate",
                "ec2:CreateFleet",
                "ec2:DescribeSpotPriceHistory",
                "pricing:GetProducts"
            ],
            "Effect": "Allow",
            "Resource": "*",
            "Sid": "Karpenter"
        },
        {
            "Action": "ec2:TerminateInstances",
            "Condition": {
                "StringLike": {
                    "ec2:ResourceTag/Name": "*karpenter*"
                }
            },
            "Effect": "Allow",
            "Resource": "*",
            "Sid": "ConditionalEC2Termination"
        },
        {
            "Effect": "Allow",
            "Action": "iam:PassRole",
            "Resource": "arn:${AWS_PARTITION}:iam::${AWS_ACCOUNT_ID}:role/KarpenterNodeRole-${CLUSTER_NAME}",
            "Sid": "PassNodeIAMRole"
        },
        {
            "Effect": "Allow",
            "Action": "eks:DescribeCluster",
            "Resource": "arn:${AWS_PARTITION}:eks:${AWS_REGION}:${AWS_ACCOUNT_ID}:cluster/${CLUSTER_NAME}",
            "Sid": "EKSClusterEndpointLookup"
        }
    ],
    "Version": "2012-10-17"
}
EOF
aws iam put-role-policy \
    --role-name KarpenterControllerRole-${CLUSTER_NAME} \
    --policy-name KarpenterControllerPolicy-${CLUSTER_NAME} \
    --policy-document file://controller-policy.json
"""

SUBNET_TAGS = r"""
for NODEGROUP in $(aws eks list-nodegroups --cluster-name ${CLUSTER_NAME} \
    --query 'nodegroups' --output text); do aws ec2 create-tags \
        --tags "Key=karpenter.sh/discovery,Value=${CLUSTER_NAME}" \
        --resources $(aws eks describe-nodegroup --cluster-name ${CLUSTER_NAME} \
        --nodegroup-name $NODEGROUP --query 'nodegroup.subnets' --output text )
done
"""

GROUP_TAGS = r"""
NODEGROUP=$(aws eks list-nodegroups --cluster-name ${CLUSTER_NAME} \
    --query 'nodegroups[0]' --output text)
LAUNCH_TEMPLATE=$(aws eks describe-nodegroup --cluster-name ${CLUSTER_NAME} \
    --nodegroup-name ${NODEGROUP} --query 'nodegroup.launchTemplate.{id:id,version:version}' \
    --output text | tr -s "\t" ",")
SECURITY_GROUPS=$(aws ec2 describe-launch-template-versions \
    --launch-template-id ${LAUNCH_TEMPLATE%,*} --versions ${LAUNCH_TEMPLATE#*,} \
    --query 'LaunchTemplateVersions[0].LaunchTemplateData.[NetworkInterfaces[0].Groups||SecurityGroupIds]' \
    --output text)
aws ec2 create-tags \
    --tags "Key=karpenter.sh/discovery,Value=${CLUSTER_NAME}" \
    --resources ${SECURITY_GROUPS}
"""

#: `kubectl edit` with an editor that adds the four lines.
AWS_AUTH = r"""
add_role() {
cat << 'EOF' > add-role.py
import sys
text = open(sys.argv[1]).read()
line = "    - groups:\n      - system:bootstrappers\n      - system:nodes\n      rolearn: ROLE\n" \
    "      username: system:node:{{EC2PrivateDNSName}}\n"
open(sys.argv[1], "w").write(text.replace("  mapRoles: |\n", "  mapRoles: |\n" + line, 1))
EOF
sed -i "s#ROLE#arn:aws:iam::${AWS_ACCOUNT_ID}:role/KarpenterNodeRole-${CLUSTER_NAME}#" add-role.py
KUBE_EDITOR="python3 add-role.py" kubectl edit configmap aws-auth -n kube-system
}
add_role
"""

HELM_TEMPLATE = r"""
export KARPENTER_VERSION=v0.30.0
"$HELM" template karpenter oci://$DOVETAIL_CHARTS/karpenter/karpenter --plain-http \
    --version ${KARPENTER_VERSION} \
    --namespace karpenter \
    --set settings.aws.defaultInstanceProfile=KarpenterNodeInstanceProfile-${CLUSTER_NAME} \
    --set settings.aws.clusterName=${CLUSTER_NAME} \
    --set serviceAccount.annotations."eks\.amazonaws\.com/role-arn"="arn:${AWS_PARTITION}:iam::${AWS_ACCOUNT_ID}:role/KarpenterControllerRole-${CLUSTER_NAME}" \
    --set controller.resources.requests.cpu=1 \
    --set controller.resources.requests.memory=1Gi \
    --set controller.resources.limits.cpu=1 \
    --set controller.resources.limits.memory=1Gi \
    --set replicas=2 > karpenter.yaml
"""  # noqa: E501

NAMESPACE = "kubectl create namespace karpenter\n"

PROVISIONER_DEFINITION = r"""
kubectl create -f http://$DOVETAIL_CHARTS/aws/karpenter/v0.30.0/pkg/apis/crds/karpenter.sh_provisioners.yaml
"""
TEMPLATE_DEFINITION = r"""
kubectl create -f http://$DOVETAIL_CHARTS/aws/karpenter/v0.30.0/pkg/apis/crds/karpenter.k8s.aws_awsnodetemplates.yaml
"""
APPLY = "kubectl apply -f karpenter.yaml\n"

PROVISIONER = r"""
cat << EOF | kubectl apply -f -
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata:
  name: default
spec:
  requirements:
    - key: karpenter.sh/capacity-type
      operator: In
      values: ["on-demand"]
    - key: karpenter.k8s.aws/instance-category
      operator: In
      values: ["c", "t", "m"]
    - key: "topology.kubernetes.io/zone"
      operator: In
      values: ["ap-northeast-2a", "ap-northeast-2b", "ap-northeast-2c"]
  limits:
    resources:
      cpu: 1000
  providerRef:
    name: default
  consolidation:
    enabled: true
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata:
  name: default
spec:
  subnetSelector:
    karpenter.sh/discovery: "${CLUSTER_NAME}"
  securityGroupSelector:
    karpenter.sh/discovery: "${CLUSTER_NAME}"
EOF
"""

#: Karpenter on an existing cluster, v0.30, with `helm template` and definitions by URL.
EXISTING_CLUSTER: Mapping[str, str] = {
    "node role": NODE_ROLE,
    "instance profile": INSTANCE_PROFILE,
    "controller role": CONTROLLER_ROLE,
    "controller policy": CONTROLLER_POLICY,
    "subnet tags": SUBNET_TAGS,
    "security group tags": GROUP_TAGS,
    "aws-auth": AWS_AUTH,
    "helm template": HELM_TEMPLATE,
    "namespace": NAMESPACE,
    "provisioner definition": PROVISIONER_DEFINITION,
    "template definition": TEMPLATE_DEFINITION,
    "apply": APPLY,
    "provisioner": PROVISIONER,
}

#: The `set` blocks of a `helm_release`, v0.16, as Helm's own command line.
TERRAFORM_RELEASE = r"""
"$HELM" upgrade --install karpenter karpenter --repo http://$DOVETAIL_CHARTS --version v0.16.0 \
    --namespace karpenter --create-namespace \
    --set replicas=2 \
    --set "serviceAccount.annotations.eks\.amazonaws\.com/role-arn=arn:aws:iam::${AWS_ACCOUNT_ID}:role/KarpenterControllerRole-${CLUSTER_NAME}" \
    --set clusterName=${CLUSTER_NAME} \
    --set clusterEndpoint=$(aws eks describe-cluster --name ${CLUSTER_NAME} --query cluster.endpoint --output text) \
    --set aws.defaultInstanceProfile=KarpenterNodeInstanceProfile-${CLUSTER_NAME}
"""  # noqa: E501
TERRAFORM: Mapping[str, str] = {
    "node role": NODE_ROLE,
    "instance profile": INSTANCE_PROFILE,
    "controller role": CONTROLLER_ROLE,
    "controller policy": CONTROLLER_POLICY,
    "subnet tags": SUBNET_TAGS,
    "security group tags": GROUP_TAGS,
    "aws-auth": AWS_AUTH,
    "release": TERRAFORM_RELEASE,
    "provisioner": PROVISIONER,
}

#: Pod Identity for the controller, a queue, and the policy of today: what the workshop's environment has.
POD_IDENTITY = r"""
dovetail iam --cluster ${CLUSTER_NAME} --part controller-trust > pod-identity-trust.json
dovetail iam --cluster ${CLUSTER_NAME} > controller-policy.json
aws iam create-role --role-name KarpenterControllerRole-${CLUSTER_NAME} \
    --assume-role-policy-document file://pod-identity-trust.json
aws iam put-role-policy --role-name KarpenterControllerRole-${CLUSTER_NAME} \
    --policy-name KarpenterControllerPolicy --policy-document file://controller-policy.json
aws eks create-pod-identity-association --cluster-name ${CLUSTER_NAME} --namespace karpenter \
    --service-account karpenter --role-arn arn:aws:iam::${AWS_ACCOUNT_ID}:role/KarpenterControllerRole-${CLUSTER_NAME}
"""
POD_IDENTITY_AGENT = """
aws eks create-addon --cluster-name ${CLUSTER_NAME} --addon-name eks-pod-identity-agent
"""
#: Version 1 of the aws command looks for SQS at Amazon whatever the environment says.
QUEUE = 'aws sqs create-queue --queue-name ${CLUSTER_NAME} --endpoint-url "$AWS_ENDPOINT_URL"\n'
WORKSHOP_RELEASE = r"""
EKS_CLUSTER_NAME=${CLUSTER_NAME} KARPENTER_SQS_QUEUE=${CLUSTER_NAME} KARPENTER_VERSION=1.2.1
"$HELM" upgrade --install karpenter oci://$DOVETAIL_CHARTS/karpenter/karpenter --plain-http \
  --version "${KARPENTER_VERSION}" \
  --namespace "karpenter" --create-namespace \
  --set "settings.clusterName=${EKS_CLUSTER_NAME}" \
  --set "settings.interruptionQueue=${KARPENTER_SQS_QUEUE}" \
  --set controller.resources.requests.cpu=1 \
  --set controller.resources.requests.memory=1Gi \
  --set controller.resources.limits.cpu=1 \
  --set controller.resources.limits.memory=1Gi \
  --set replicas=1 \
  --wait

  kubectl get deployment -n karpenter
"""
NODE_POOL = r"""
cat << EOF | kubectl apply -f -
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata:
  name: default
spec:
  template:
    metadata:
      labels:
        type: karpenter
    spec:
      requirements:
        - key: "karpenter.sh/capacity-type"
          operator: In
          values: ["on-demand"]
        - key: "node.kubernetes.io/instance-type"
          operator: In
          values: ["c5.large", "m5.large", "r5.large", "m5.xlarge"]
      nodeClassRef:
        name: default
  limits:
    cpu: "1000"
    memory: 1000Gi
  disruption:
    consolidationPolicy: WhenUnderutilized
    expireAfter: 720h # 30 * 24h = 720h
---
apiVersion: karpenter.k8s.aws/v1beta1
kind: EC2NodeClass
metadata:
  name: default
spec:
  amiFamily: AL2023 # Amazon Linux 2023
  role: "KarpenterNodeRole-${CLUSTER_NAME}"
  subnetSelectorTerms:
    - tags:
        karpenter.sh/discovery: ${CLUSTER_NAME}
  securityGroupSelectorTerms:
    - tags:
        karpenter.sh/discovery: ${CLUSTER_NAME}
  tags:
    app.kubernetes.io/created-by: eks-workshop
EOF
"""
#: The workshop: Pod Identity, today's values, NodePool and EC2NodeClass in v1beta1.
WORKSHOP: Mapping[str, str] = {
    "node role": NODE_ROLE,
    "pod identity": POD_IDENTITY,
    "pod identity agent": POD_IDENTITY_AGENT,
    "queue": QUEUE,
    "subnet tags": SUBNET_TAGS,
    "security group tags": GROUP_TAGS,
    "aws-auth": AWS_AUTH,
    "release": WORKSHOP_RELEASE,
    "node pool": NODE_POOL,
}

#: The section on Karpenter of a page on autoscaling, as it stands. eksctl is not to be had here: a function answers the
#: two questions that the page asks it. `//` before a comment is the page's own: the shell says what it thinks of it.
EKSCTL = r"""
eksctl() {
  if [ "$2" = cluster ]; then
    aws eks list-clusters --query 'clusters[].{Name: @}'
  else
    aws eks list-nodegroups --cluster-name "$4" --query 'nodegroups[].{Name: @}'
  fi
}
KARPENTER_NAMESPACE=karpenter
"""
SECTION_NODE_ROLE = r"""
echo '{
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {
                "Service": "ec2.amazonaws.com"
            },
            "Action": "sts:AssumeRole"
        }
    ]
}' > node-trust-policy.json

aws iam create-role --role-name "KarpenterNodeRole" \
    --assume-role-policy-document file://KarpenterNodePolicy.json
aws iam attach-role-policy --role-name "KarpenterNodeRole" \
    --policy-arn "arn:${AWS_PARTITION}:iam::aws:policy/AmazonEKSWorkerNodePolicy"

aws iam attach-role-policy --role-name "KarpenterNodeRole" \
    --policy-arn "arn:${AWS_PARTITION}:iam::aws:policy/AmazonEKS_CNI_Policy"

aws iam attach-role-policy --role-name "KarpenterNodeRole" \
    --policy-arn "arn:${AWS_PARTITION}:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"

aws iam attach-role-policy --role-name "KarpenterNodeRole" \
    --policy-arn "arn:${AWS_PARTITION}:iam::aws:policy/AmazonSSMManagedInstanceCore"
"""
SECTION_CONTROLLER_ROLE = r"""
cat << EOF > controller-trust-policy.json
{
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {
                "Federated": "arn:${AWS_PARTITION}:iam::${AWS_ACCOUNT_ID}:oidc-provider/${OIDC_ENDPOINT#*//}"
            },
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": {
                "StringEquals": {
                    "${OIDC_ENDPOINT#*//}:aud": "sts.amazonaws.com",
                    "${OIDC_ENDPOINT#*//}:sub": "system:serviceaccount:${KARPENTER_NAMESPACE}:karpenter"
                }
            }
        }
    ]
}
EOF


// create the role
aws iam create-role --role-name "KarpenterControllerRole-${CLUSTER_NAME}" \
    --assume-role-policy-document file://controller-trust-policy.json
"""
SECTION_CONTROLLER_POLICY = r"""
cat << EOF > controller-policy.json
{
    "Statement": [
        {
            "Action": [
                "ssm:GetParameter",
                "ec2:DescribeImages",
                "ec2:RunInstances",
                "ec2:DescribeSubnets",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeLaunchTemplates",
                "ec2:DescribeInstances",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeInstanceTypeOfferings",
                "ec2:DescribeAvailabilityZones",
                "ec2:DeleteLaunchTemplate",
                "ec2:CreateTags",
                "ec2:CreateLaunchTemplate",
                "ec2:CreateFleet",
                "ec2:DescribeSpotPriceHistory",
                "pricing:GetProducts"
            ],
            "Effect": "Allow",
            "Resource": "*",
            "Sid": "Karpenter"
        },
        {
            "Action": "ec2:TerminateInstances",
            "Condition": {
                "StringLike": {
                    "ec2:ResourceTag/karpenter.sh/nodepool": "*"
                }
            },
            "Effect": "Allow",
            "Resource": "*",
            "Sid": "ConditionalEC2Termination"
        },
        {
            "Effect": "Allow",
            "Action": "iam:PassRole",
            "Resource": "arn:${AWS_PARTITION}:iam::${AWS_ACCOUNT_ID}:role/KarpenterNodeRole-${CLUSTER_NAME}",
            "Sid": "PassNodeIAMRole"
        },
        {
            "Effect": "Allow",
            "Action": "eks:DescribeCluster",
            "Resource": "arn:${AWS_PARTITION}:eks:${AWS_REGION}:${AWS_ACCOUNT_ID}:cluster/${CLUSTER_NAME}",
            "Sid": "EKSClusterEndpointLookup"
        },
        {
            "Sid": "AllowScopedInstanceProfileCreationActions",
            "Effect": "Allow",
            "Resource": "*",
            "Action": [
            "iam:CreateInstanceProfile"
            ],
            "Condition": {
            "StringEquals": {
                "aws:RequestTag/kubernetes.io/cluster/${CLUSTER_NAME}": "owned",
                "aws:RequestTag/topology.kubernetes.io/region": "${AWS_REGION}"
            },
            "StringLike": {
                "aws:RequestTag/karpenter.k8s.aws/ec2nodeclass": "*"
            }
            }
        },
        {
            "Sid": "AllowScopedInstanceProfileTagActions",
            "Effect": "Allow",
            "Resource": "*",
            "Action": [
            "iam:TagInstanceProfile"
            ],
            "Condition": {
            "StringEquals": {
                "aws:ResourceTag/kubernetes.io/cluster/${CLUSTER_NAME}": "owned",
                "aws:ResourceTag/topology.kubernetes.io/region": "${AWS_REGION}",
                "aws:RequestTag/kubernetes.io/cluster/${CLUSTER_NAME}": "owned",
                "aws:RequestTag/topology.kubernetes.io/region": "${AWS_REGION}"
            },
            "StringLike": {
                "aws:ResourceTag/karpenter.k8s.aws/ec2nodeclass": "*",
                "aws:RequestTag/karpenter.k8s.aws/ec2nodeclass": "*"
            }
            }
        },
        {
            "Sid": "AllowScopedInstanceProfileActions",
            "Effect": "Allow",
            "Resource": "*",
            "Action": [
            "iam:AddRoleToInstanceProfile",
            "iam:RemoveRoleFromInstanceProfile",
            "iam:DeleteInstanceProfile"
            ],
            "Condition": {
            "StringEquals": {
                "aws:ResourceTag/kubernetes.io/cluster/${CLUSTER_NAME}": "owned",
                "aws:ResourceTag/topology.kubernetes.io/region": "${AWS_REGION}"
            },
            "StringLike": {
                "aws:ResourceTag/karpenter.k8s.aws/ec2nodeclass": "*"
            }
            }
        },
        {
            "Sid": "AllowInstanceProfileReadActions",
            "Effect": "Allow",
            "Resource": "*",
            "Action": "iam:GetInstanceProfile"
        }
    ],
    "Version": "2012-10-17"
}
EOF


// attach the policy
aws iam put-role-policy --role-name "KarpenterControllerRole-${CLUSTER_NAME}" \
    --policy-name "KarpenterControllerPolicy-${CLUSTER_NAME}" \
    --policy-document file://controller-policy.json
"""
SECTION_TAGS = r"""
for NODEGROUP in $(aws eks list-nodegroups --cluster-name "${CLUSTER_NAME}" --query 'nodegroups' --output text); do
    aws ec2 create-tags \
        --tags "Key=karpenter.sh/discovery,Value=${CLUSTER_NAME}" \
        --resources $(aws eks describe-nodegroup --cluster-name "${CLUSTER_NAME}" \
        --nodegroup-name "${NODEGROUP}" --query 'nodegroup.subnets' --output text )
done
export CLUSTER_NAME=$(eksctl get cluster --output json | jq -r '.[].Name')

NODEGROUP=$(eksctl get nodegroup --cluster "${CLUSTER_NAME}" -o json | jq -r '.[0].Name')

LAUNCH_TEMPLATE=$(aws eks describe-nodegroup --cluster-name "${CLUSTER_NAME}" \
    --nodegroup-name "${NODEGROUP}" --query 'nodegroup.launchTemplate.{id:id,version:version}' \
    --output text | tr -s "\t" ",")

SECURITY_GROUPS=$(aws eks describe-cluster --name "${CLUSTER_NAME}" | jq -r '.cluster.resourcesVpcConfig.securityGroupIds.[0]')

SECURITY_GROUPS="$(aws ec2 describe-launch-template-versions \
    --launch-template-id "${LAUNCH_TEMPLATE%,*}" --versions "${LAUNCH_TEMPLATE#*,}" \
    --query 'LaunchTemplateVersions[0].LaunchTemplateData.[NetworkInterfaces[0].Groups||SecurityGroupIds]' \
    --output text)"

aws ec2 create-tags \
    --tags "Key=karpenter.sh/discovery,Value=${CLUSTER_NAME}" \
    --resources "${SECURITY_GROUPS}"
"""  # noqa: E501
#: What the page it refers to goes on with.
SECTION_RELEASE = r"""
"$HELM" upgrade --install karpenter oci://$DOVETAIL_CHARTS/karpenter/karpenter --plain-http --version 1.0.1 \
    --namespace "${KARPENTER_NAMESPACE}" --create-namespace \
    --set "settings.clusterName=${CLUSTER_NAME}" \
    --set "serviceAccount.annotations.eks\.amazonaws\.com/role-arn=arn:${AWS_PARTITION}:iam::${AWS_ACCOUNT_ID}:role/KarpenterControllerRole-${CLUSTER_NAME}" \
    --set controller.resources.requests.cpu=1
"""  # noqa: E501
SECTION: Mapping[str, str] = {
    "eksctl": EKSCTL,
    "node role": SECTION_NODE_ROLE,
    "controller role": SECTION_CONTROLLER_ROLE,
    "controller policy": SECTION_CONTROLLER_POLICY,
    "tags": SECTION_TAGS,
    "aws-auth": AWS_AUTH,
    "release": SECTION_RELEASE,
    "node pool": NODE_POOL,
}
#: With its two slips mended: the file's name, and the name of the role that the controller's policy passes.
MENDED_SECTION: Mapping[str, str] = {
    **SECTION,
    "node role": SECTION_NODE_ROLE.replace("KarpenterNodePolicy.json", "node-trust-policy.json").replace(
        '"KarpenterNodeRole"', '"KarpenterNodeRole-${CLUSTER_NAME}"'
    ),
}

VALUES_RELEASE = r"""
cat << EOF > values.yaml
affinity:
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 50
        preference:
          matchExpressions:
            - key: eks.amazonaws.com/nodegroup
              operator: Exists

tolerations:
  - key: CriticalAddonsOnly
    operator: Exists
  - key: system
    operator: Exists
    effect: "NoSchedule"

settings:
  clusterName: "${CLUSTER_NAME}"
  interruptionQueue: "${CLUSTER_NAME}"
EOF
"$HELM" upgrade -i -n karpenter karpenter-crd oci://$DOVETAIL_CHARTS/karpenter/karpenter-crd --plain-http \
    --create-namespace
"$HELM" upgrade -i -n karpenter karpenter oci://$DOVETAIL_CHARTS/karpenter/karpenter --plain-http -f values.yaml
"""
#: The definitions as a release of their own, and a values file.
VALUES_FILE: Mapping[str, str] = {**WORKSHOP, "release": VALUES_RELEASE}

#: Five pods that only a launched node takes: the nodes of the first node group are left out.
INFLATE = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: inflate}
spec:
  replicas: 5
  selector: {matchLabels: {app: inflate}}
  template:
    metadata: {labels: {app: inflate}}
    spec:
      terminationGracePeriodSeconds: 0
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions: [{key: eks.amazonaws.com/nodegroup, operator: DoesNotExist}]
      containers:
        - name: inflate
          image: public.ecr.aws/eks-distro/kubernetes/pause:3.2
          resources: {requests: {memory: 1Gi}}
"""


def commands(text: str) -> list[str]:
    """The commands of a script, as a shell reads them: with their continued lines and here-documents."""
    found: list[str] = []
    lines = iter(text.splitlines(keepends=True))
    for line in lines:
        command = line
        while (end := _here_document(command)) or not _is_complete(command):
            line = next(lines)
            command += line
            while end and line.strip() != end:
                line = next(lines)
                command += line
        if command.strip() and not command.startswith("#"):
            found.append(command)
    return found


def _here_document(command: str) -> str:
    """The word that ends the here-document which the last line opens."""
    opened = re.search(r"<< *'?(\w+)'?", command.splitlines()[-1])
    return opened[1] if opened else ""


def _is_complete(command: str) -> bool:
    if command.rstrip("\n").endswith("\\"):
        return False
    return subprocess.run(["bash", "-n", "-c", command], capture_output=True).returncode == 0


def script(steps: Mapping[str, str], without: str = "") -> str:
    """What is typed, in one shell; a line that fails does not end it, as at a terminal.

    `without` names what is left out by a piece of its text: a command, or of a command a `--set`, a ` --flag` or the
    document of a `kind:` alone.
    """
    typed = commands(ENVIRONMENT + "".join(steps.values()))
    if not without:
        return "".join(typed)
    (left_out,) = [number for number, command in enumerate(typed) if without in command]
    typed[left_out] = _rest(typed[left_out], without)
    return "".join(typed)


def _rest(command: str, without: str) -> str:
    """What remains of a command from which a part is left out."""
    if without.startswith(" --"):
        return command.replace(without, "")
    if without.startswith("--set"):
        kept = "".join(line for line in command.splitlines(keepends=True) if without not in line)
        return kept.removesuffix("\\\n") + "\n" if kept.endswith("\\\n") else kept
    if without.startswith("kind:"):
        head, _, body = command.partition("\n")
        documents = body.removesuffix("EOF\n").split("---\n")
        kept = "---\n".join(text for text in documents if without not in text)
        return f"{head}\n{kept}EOF\n"
    return ""
