"""Why: what a person asks of a pod, a node or a pool, answered from the objects and the ledger.

Pure: the mirror and the decisions come in, an `Answer` goes out.
"""

from dovetail.controllers.explanation.answer import Answer, Unknown, since
from dovetail.controllers.explanation.leadership import silence
from dovetail.controllers.explanation.nodes import claim, node
from dovetail.controllers.explanation.pods import pod
from dovetail.controllers.explanation.pools import nodepool

__all__ = ["Answer", "Unknown", "claim", "node", "nodepool", "pod", "silence", "since"]
