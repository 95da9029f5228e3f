"""Losses with their first and second derivatives by the score f, row by row.

    squared    (f - y)²                  g = f - y            h = 1
    logistic   log(1 + e^f) - y f        g = p - y            h = p (1 - p)
    softmax    log Σ_c e^(f_c) - f_y     g = p_c - [y = c]    h = K/(K-1) p_c (1 - p_c)

g and h of the squared loss are halved; the caller multiplies all by weights of rows.
exp and log here consist of additions and multiplications, whose results IEEE 754
determines. Those of a vector library may differ between the body and the end of a loop,
so that the bits of a row would depend on its place on a rank.
"""

import numpy as np
from numba import njit

LOG2E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
SQRT_HALF = 0.7071067811865476
LIMIT = 700.0  # of the argument of exp
WHOLE = 6755399441055744.0  # 3 · 2^51; the low bits of k + WHOLE are those of k

# A test for a divisor of 0, or a conversion to int64, would keep the compiler from
# vectors. No option permits other bits.
compiled = njit(cache=True, nogil=True, error_model="numpy")


@compiled
def exp(x):
    """Return e^x for |x| ≤ LIMIT, clamped; the error is about an ulp."""
    x = -LIMIT if x < -LIMIT else x
    x = LIMIT if x > LIMIT else x
    k = np.floor(x * LOG2E + 0.5)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    s = 1.0 / 6227020800.0
    s = s * r + 1.0 / 479001600.0
    s = s * r + 1.0 / 39916800.0
    s = s * r + 1.0 / 3628800.0
    s = s * r + 1.0 / 362880.0
    s = s * r + 1.0 / 40320.0
    s = s * r + 1.0 / 5040.0
    s = s * r + 1.0 / 720.0
    s = s * r + 1.0 / 120.0
    s = s * r + 1.0 / 24.0
    s = s * r + 1.0 / 6.0
    s = s * r + 0.5
    s = (s * r + 1.0) * r + 1.0
    bits = np.float64(k + WHOLE).view(np.int64)
    return s * np.int64((bits + 1023) << 52).view(np.float64)


@compiled
def log(x):
    """Return the natural logarithm of a normal x > 0; the error is a few ulps."""
    bits = np.float64(x).view(np.int64)
    k = (bits >> 52) - 1022
    m = np.int64((bits & 0xFFFFFFFFFFFFF) | (1022 << 52)).view(np.float64)
    if m < SQRT_HALF:
        m, k = 2.0 * m, k - 1
    z = (m - 1.0) / (m + 1.0)
    z2 = z * z
    s = 0.0
    for i in range(12, 0, -1):
        s = (s + 1.0 / (2 * i + 1)) * z2
    return k * LN2_HIGH + (2.0 * z * (1.0 + s) + k * LN2_LOW)


@compiled
def sigmoid(f):
    """Return 1 / (1 + e^-f)."""
    return 1.0 / (1.0 + exp(-f))


@compiled
def probabilities(scores_NxK, p_NxK):
    """Write the probabilities of softmax."""
    for i in range(scores_NxK.shape[0]):
        top = scores_NxK[i, 0]
        for c in range(1, scores_NxK.shape[1]):
            top = max(top, scores_NxK[i, c])
        sum_ = 0.0
        for c in range(scores_NxK.shape[1]):
            p_NxK[i, c] = exp(scores_NxK[i, c] - top)
            sum_ += p_NxK[i, c]
        for c in range(scores_NxK.shape[1]):
            p_NxK[i, c] /= sum_


@compiled
def squared_gradient(f_NxK, y, c, g, h):
    """Write g and h of the squared loss."""
    f = f_NxK.reshape(-1)  # K is 1
    for i in range(len(y)):
        g[i] = f[i] - y[i]
        h[i] = 1.0


@compiled
def logistic_gradient(f_NxK, y, c, g, h):
    """Write g and h of the logistic loss."""
    f = f_NxK.reshape(-1)  # K is 1
    for i in range(len(y)):
        p = sigmoid(f[i])
        g[i] = p - y[i]
        h[i] = p * (1.0 - p)


@compiled
def softmax_gradient(p_NxK, y, c, g, h):
    """Write g and h of class c, from the probabilities."""
    classes = p_NxK.shape[1]
    factor = classes / (classes - 1.0)
    for i in range(len(y)):
        p = p_NxK[i, c]
        g[i] = p - (1.0 if y[i] == c else 0.0)
        h[i] = factor * (p * (1.0 - p))


@compiled
def squared_loss(f_NxK, y, losses):
    """Write the loss of each row."""
    f = f_NxK.reshape(-1)
    for i in range(len(y)):
        losses[i] = (f[i] - y[i]) * (f[i] - y[i])


@compiled
def logistic_loss(f_NxK, y, losses):
    """Write the loss of each row."""
    f = f_NxK.reshape(-1)
    for i in range(len(y)):
        margin = f[i] if y[i] > 0.5 else -f[i]
        less = -margin if margin < 0.0 else 0.0
        losses[i] = less + log(1.0 + exp(-abs(margin)))


@compiled
def softmax_loss(f_NxK, y, losses):
    """Write the loss of each row."""
    for i in range(len(y)):
        top = f_NxK[i, 0]
        for c in range(1, f_NxK.shape[1]):
            top = max(top, f_NxK[i, c])
        sum_ = 0.0
        for c in range(f_NxK.shape[1]):
            sum_ += exp(f_NxK[i, c] - top)
        losses[i] = log(sum_) + top - f_NxK[i, np.int64(y[i])]


GRADIENTS = {
    "squared": squared_gradient,
    "logistic": logistic_gradient,
    "softmax": softmax_gradient,
}
LOSSES = {
    "squared": squared_loss,
    "logistic": logistic_loss,
    "softmax": softmax_loss,
}
