"""How a message crosses its links: the one place, compiled, for ranks and schedules."""

from numba import njit


@njit(cache=True)
def cross(start, nbytes, beta, links, link_alpha, link_beta, free):
    """Take a message over its links; return when its head is at the in port, and β.

    free[l] is when link l can take the next head.
    """
    for link in links:
        start = max(start, free[link])
        free[link] = start + nbytes * link_beta[link]
        start += link_alpha[link]
        beta = max(beta, link_beta[link])
    return start, beta
