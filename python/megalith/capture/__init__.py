"""Models of other frameworks as a ``Net``: ``capture.torch``, ``capture.keras``."""
