"""PersistentVolume and PersistentVolumeClaim: the binder and its controller."""
