"""A small Kubernetes client on aiohttp and msgspec: requests, watches, leases, events, workqueue, rate limits."""
