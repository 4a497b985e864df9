"""What it takes to live in an EKS cluster: RBAC, IAM, the chart and its values, installing and removing."""
