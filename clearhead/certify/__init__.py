"""The certificate: a checkpoint folder in, proof that its numbers are right out."""

from .certificate import Certificate, CertificateRow, certify
from .sample import SampleBatch

__all__ = [
    "Certificate", "CertificateRow", "certify",
    # for the other packages
    "SampleBatch",
]  # fmt: skip
