"""Why a pod has no node: `unschedulable` builds the funnel of filters of every NodePool (`filters`), with a remedy
(`remedies`) and the values that exist (`suggestions`).
"""
