"""The lab's scheduler: kube-scheduler's decisions in its own words, on any clock."""
