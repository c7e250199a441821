"""Advisors: steps around the answer to a chat, one file each, behind the protocol in `base`."""
