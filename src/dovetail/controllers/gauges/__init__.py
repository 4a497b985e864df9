"""Numbers about what there is, by Karpenter's names, written down when somebody asks and at no cost otherwise."""
