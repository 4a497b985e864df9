"""What would happen to a cluster: its objects put into a lab, a change applied, and the lab run until it is at rest."""
