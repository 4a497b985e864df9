"""`dovetail doctor`: read a cluster and its AWS account once, and check them for known misconfigurations."""
