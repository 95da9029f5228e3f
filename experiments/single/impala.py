"""IMPALA: actors send rollouts, a learner sends params; V-trace corrects the lag.

    actor 1   ─ T steps, params v-1 ──┐  ┌─ T steps, params v ──┐  ┌─ T steps, …
    actor 2   ─ T steps, params v-1 ──┤  ├─ T steps, params v ──┤  ├─ T steps, …
                             rollouts ▼  │ params v             ▼  │ params v+1
    learner   ─── update v-1 ────────────┴── update v ─────────────┴── update v+1

Update v computes params v+1 from B rollouts. If the learner answers a rollout at once,
actors do not wait, and their policy μ lags 1 update behind π; if it answers after the
update, μ = π. V-trace (Espeholt 2018) with ρ_t = c_t = min(1, π(a_t) / μ(a_t)):

    δ_t = r_t + γ V_{t+1} - V_t
    v_t = V_t + ρ_t (δ_t + γ (v_{t+1} - V_{t+1})),   v_T = V_T    the targets of values
    loss = - ρ_t (r_t + γ v_{t+1} - V_t) log π(a_t) + ½ (v_t - V_t)², mean of BT steps

Environment: a corridor 0 ◄─► 1 ◄─► 2 ◄─► 3 ─► 4; reward 1 at 4, then from 0, forever.
Sent for a rollout: n + 2 words down (n params, version), 4T + 3 up; a word is 4 bytes.

    mpirun -n 4 python experiments/single/impala.py
"""

import numpy as np
from mpi4py import MPI

STATES, T, GAMMA = 5, 16, 0.9
PARAMS = np.dtype([("version", "i8"), ("table", "f4", (STATES, 3))])  # 2 logits, V
STEP = np.dtype([("state", "i4"), ("action", "i4"), ("reward", "f4"), ("mu", "f4")])
ROLLOUT = np.dtype([("version", "i8"), ("steps", STEP, T), ("last", "i4")])


def step(state, action):
    """Return the next state and the reward: action 1 goes right, 0 left."""
    state = max(0, state + 2 * action - 1)
    return (0, 1.0) if state == STATES - 1 else (state, 0.0)


def play(table, version, state, rng):
    """Return a rollout of T steps; its last state is the first of the next."""
    rollout = np.zeros(1, ROLLOUT)
    for t in range(T):
        to_right = 1 / (1 + np.exp(table[state, 0] - table[state, 1]))
        action = int(rng.random() < to_right)
        following, reward = step(state, action)
        mu = to_right if action else 1 - to_right
        rollout["steps"][0, t] = state, action, reward, mu
        state = following
    rollout["version"], rollout["last"] = version, state
    return rollout


def vtrace(rewards, values, weights):
    """Return the targets v_t of the T + 1 values; time is the last axis."""
    targets = values.copy()
    for t in reversed(range(T)):
        delta = rewards[..., t] + GAMMA * values[..., t + 1] - values[..., t]
        trace = GAMMA * (targets[..., t + 1] - values[..., t + 1])
        targets[..., t] = values[..., t] + weights[..., t] * (delta + trace)
    return targets


def gradient(table, rollouts):
    """Return the gradient of the mean loss of the steps of B rollouts."""
    steps, last = rollouts["steps"], rollouts["last"][:, None]
    values = table[np.concatenate([steps["state"], last], axis=1), 2]
    pi = np.exp(table[steps["state"], :2])
    pi /= pi.sum(axis=-1, keepdims=True)
    chosen = steps["action"][..., None] == [0, 1]
    weights = np.minimum(1, (pi * chosen).sum(axis=-1) / steps["mu"])  # ρ_t
    targets = vtrace(steps["reward"], values, weights)
    advantages = steps["reward"] + GAMMA * targets[:, 1:] - values[:, :-1]
    policy = (weights * advantages)[..., None] * (pi - chosen)
    terms = np.concatenate([policy, (values - targets)[:, :-1, None]], axis=-1)
    grad = np.zeros_like(table)
    np.add.at(grad, steps["state"], terms / weights.size)
    return grad


def act(comm):
    """Play rollouts with the params that the learner sends, until it sends the end."""
    params, state = np.zeros(1, PARAMS), 0
    rng = np.random.default_rng([0, comm.Get_rank()])
    while True:
        comm.Recv(params.view(np.uint8), 0)
        if params["version"][0] < 0:
            return
        rollout = play(params["table"][0], params["version"][0], state, rng)
        state = rollout["last"][0]
        comm.Send(rollout.view(np.uint8), 0)


def learn(comm, updates, rate, at_once):
    """Return params, and rollouts by update; answer at once or after updates."""
    params, consumed, status = np.zeros(1, PARAMS), [], MPI.Status()
    actors, message = range(1, comm.Get_size()), params.view(np.uint8)  # same memory

    def receive():
        rollout = np.empty(1, ROLLOUT)
        comm.Recv(rollout.view(np.uint8), MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        return status.Get_source(), rollout

    for actor in actors:
        comm.Send(message, actor)
    for version in range(updates):
        queue = []
        while len(queue) < len(actors):
            queue.append(receive())
            if at_once:
                comm.Send(message, queue[-1][0])
        queue.sort(key=lambda pair: pair[0])  # by actor, not by arrival
        consumed.append(np.concatenate([rollout for _, rollout in queue]))
        params["table"][0] -= rate * gradient(params["table"][0], consumed[-1])
        params["version"] = version + 1
        for actor in () if at_once else actors:
            comm.Send(message, actor)
    for _ in actors:  # their last rollouts are not used
        comm.Send(np.array([-1]).view(np.uint8), receive()[0])
    return params["table"][0], consumed


def one_process(actors, updates, rate):
    """Return the params of a loop that plays one actor after another."""
    table, states = np.zeros((STATES, 3), np.float32), [0] * actors
    rngs = [np.random.default_rng([0, actor + 1]) for actor in range(actors)]
    for _ in range(updates):
        own = zip(states, rngs, strict=True)
        rollouts = np.concatenate([play(table, 0, *each) for each in own])
        table, states = table - rate * gradient(table, rollouts), rollouts["last"]
    return table


def main(comm):
    rank, size, updates, rate = comm.Get_rank(), comm.Get_size(), 100, 4.0
    if size < 2:
        raise SystemExit("expected 2 ranks, a learner and actors, got 1; start more")
    if rank > 0:
        return act(comm), act(comm)  # one for each run of the learner
    for name, at_once in (("after the update", False), ("at once", True)):
        table, consumed = learn(comm, updates, rate, at_once)
        lag = np.mean([v - rollouts["version"] for v, rollouts in enumerate(consumed)])
        words = ((updates + 1) * PARAMS.itemsize + 8) * (size - 1) // 4
        print(f"answers {name}: mean lag {lag:.2f}, {words} words sent by the learner")
        rewards = [rollouts["steps"]["reward"].mean() for rollouts in consumed]
        print("mean reward of a step, every 12 updates:", *np.round(rewards[::12], 3))
        if not at_once:
            expected = one_process(size - 1, updates, rate)
            print("equal bits to one process:", np.array_equal(table, expected))


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
