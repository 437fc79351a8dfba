"""Certificates: a checkpoint folder in, a comparison of its outputs with the reference out."""

from .certificate import Certificate, CertificateRow, certify
from .sample import SampleBatch

__all__ = [
    "Certificate", "CertificateRow", "certify",
    # for the other packages
    "SampleBatch",
]  # fmt: skip
