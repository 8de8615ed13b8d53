"""Graph convolutions by Chebyshev polynomials (Defferrard et al., NeurIPS 2016), of two terms.

With L = I - D^(-1/2) A D^(-1/2), whose largest eigenvalue is taken as 2, the rescaled Laplacian is
L - I = -D^(-1/2) A D^(-1/2), so that a convolution with polynomials of degree 0 and 1 is::

    Theta *_G x = x Theta_0 - D^(-1/2) A D^(-1/2) x Theta_1

Node i reads its own row and the sum of its neighbours' messages m_j = x_j / sqrt(d_j), or
x_j Theta_1 / sqrt(d_j) where that is shorter, times -1 / sqrt(d_i).
"""

from __future__ import annotations

import torch


def scaled(x: torch.Tensor, degree: torch.Tensor) -> torch.Tensor:
    """Return D^(-1/2) x of rows ``x`` [n, .]; 0 for nodes without neighbours."""
    return x / degree.clamp(min=1).sqrt()[:, None] * (degree > 0)[:, None]
