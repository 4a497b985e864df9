"""On a screen only what is wrong belongs: log lines are for operators."""

from __future__ import annotations


def quiet_logs() -> None:
    import logging

    import structlog

    from dovetail.kube import log

    log.quiet()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
