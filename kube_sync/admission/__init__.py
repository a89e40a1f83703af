"""The admission webhook: AdmissionReview to decision to response."""

from __future__ import annotations
