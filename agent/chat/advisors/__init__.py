"""Advisors take a request before it is answered and its outcome afterwards, and return either unchanged or changed."""
