"""The tabular environments: each function returns the exact model of one benchmark as a `FiniteMDP`.

Unless said otherwise episodes start in state 0. A random environment is a function of its `instance`, drawn from
`numpy.random.default_rng(instance)` in the order kernel, rewarded cells, mean rewards.
Steps are counted from 0. Action 0 of the swimming environments is "left", action 1 "right".
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from discreet.envs.rewards import RewardLaw
from discreet.mdp import FiniteMDP, Floats

LEFT, DOWN, RIGHT, UP = range(4)  # actions of the grids

#: Numbers of states in the layers of the loop-free environments.
LAYERED = (1, 4, 4)
LAYERED_LARGE = (1, 5, 5, 5, 5, 5)
LOCK = (1, 2, 2, 2, 2, 2)


def whole(name: str, value: int, minimum: int) -> int:
    """`value` as an int, refused when it is not a whole number of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {minimum}")
    return int(value)


def _generator(instance: int) -> np.random.Generator:
    return np.random.default_rng(whole("instance", instance, 0))


def _first(num_states: int) -> Floats:
    initial = np.zeros(num_states)
    initial[0] = 1.0
    return initial


# Swimming against a current ------------------------------------------------------------------------


def _swim(num_states: int) -> tuple[Floats, Floats]:
    S = whole("num_states", num_states, 2)
    P, r = np.zeros((S, 2, S)), np.zeros((S, 2))
    for s in range(S):
        P[s, 0, max(s - 1, 0)] = 1.0
    P[0, 1, :2] = 0.4, 0.6
    for s in range(1, S - 1):
        P[s, 1, s - 1 : s + 2] = 0.05, 0.6, 0.35
    P[S - 1, 1, S - 2 :] = 0.4, 0.6
    r[0, 0], r[S - 1, 1] = 0.005, 1.0
    return P, r


def riverswim(num_states: int = 6, horizon: int = 20) -> FiniteMDP:
    """Swim right against the current to earn 1, or drift left for 0.005; the kernel of Osband et al. (2013)."""
    P, r = _swim(num_states)
    return FiniteMDP(P[None], r[None], _first(num_states), horizon, "riverswim")


def _swapped_swim(num_states: int, swapped: NDArray[np.bool_], name: str) -> FiniteMDP:
    """RiverSwim whose two actions trade places at the steps marked by `swapped`."""
    P, r = _swim(num_states)
    H = len(swapped)
    transitions = np.where(swapped[:, None, None, None], P[:, ::-1], P)
    rewards = np.where(swapped[:, None, None], r[:, ::-1], r)
    return FiniteMDP(transitions, rewards, _first(num_states), H, name)


def flipswim() -> FiniteMDP:
    """RiverSwim with 3 states and 6 steps whose actions are swapped at odd steps."""
    return _swapped_swim(3, np.arange(6) % 2 == 1, "flipswim")


def swapswim() -> FiniteMDP:
    """RiverSwim with 4 states and 12 steps whose actions are swapped from step 6 on."""
    return _swapped_swim(4, np.arange(12) >= 6, "swapswim")


def changeswim() -> FiniteMDP:
    """RiverSwim with 4 states and 12 steps where going left in state 0 pays 1 from step 6 on."""
    mdp = riverswim(4, 12).staged()
    rewards = mdp.rewards.copy()
    rewards[6:, 0, 0] = 1.0
    return FiniteMDP(mdp.transitions, rewards, mdp.initial, 12, "changeswim")


# Chains and grids ----------------------------------------------------------------------------------


def chain(num_states: int = 5, horizon: int = 20, slip: float = 0.2) -> FiniteMDP:
    """Strens' chain: action 0 walks on, action 1 returns to the start for 0.2; the last state's walk pays 1.

    With probability `slip` the other action's move and reward happen.
    """
    S = whole("num_states", num_states, 2)
    if not 0 <= slip <= 1:
        raise ValueError(f"slip is {slip}; it must lie in [0, 1]")
    moves, pays = np.zeros((S, 2, S)), np.zeros((S, 2))
    moves[np.arange(S), 0, np.minimum(np.arange(S) + 1, S - 1)] = 1.0
    moves[:, 1, 0] = 1.0
    pays[S - 1, 0], pays[:, 1] = 1.0, 0.2
    P = (1 - slip) * moves + slip * moves[:, ::-1]
    r = (1 - slip) * pays + slip * pays[:, ::-1]
    return FiniteMDP(P[None], r[None], _first(S), horizon, "chain")


def deep_sea(size: int = 10) -> FiniteMDP:
    """Dive `size` steps; only going right (action 1) at every one of them finds the treasure, worth 1.

    States are columns, as the row is the step. Each step left pays 0.01/size, which is the usual cost of moving right
    shifted into [0, 1]; so V* = 1 and the uniform policy earns 2^(−size) + 0.005.
    """
    N = whole("size", size, 2)
    P, r = np.zeros((N, 2, N)), np.zeros((N, 2))
    columns = np.arange(N)
    P[columns, 0, np.maximum(columns - 1, 0)] = 1.0
    P[columns, 1, np.minimum(columns + 1, N - 1)] = 1.0
    r[:, 0], r[N - 1, 1] = 0.01 / N, 1.0
    return FiniteMDP(P[None], r[None], _first(N), N, "deep-sea")


def two_rooms() -> FiniteMDP:
    """A 4×4 grid, cell = 4·row + column, cut between rows 1 and 2 by a wall with one door at column 3; 15 steps.

    Actions left, down, right, up succeed with probability 0.9 and slip to either perpendicular side with 0.05 each.
    Going left in cell 12 pays 1, going right in cell 1 pays 0.02.
    """
    P, r = np.zeros((16, 4, 16)), np.zeros((16, 4))
    steps = {LEFT: (0, -1), DOWN: (1, 0), RIGHT: (0, 1), UP: (-1, 0)}
    for cell in range(16):
        row, column = divmod(cell, 4)
        for action in range(4):
            for move, chance in ((action, 0.9), ((action - 1) % 4, 0.05), ((action + 1) % 4, 0.05)):
                down, right = steps[move]
                new_row, new_column = row + down, column + right
                inside = 0 <= new_row < 4 and 0 <= new_column < 4
                walled = {row, new_row} == {1, 2} and column != 3
                target = 4 * new_row + new_column if inside and not walled else cell
                P[cell, action, target] += chance
    r[12, LEFT], r[1, RIGHT] = 1.0, 0.02
    return FiniteMDP(P[None], r[None], _first(16), 15, "two-rooms")


# Random models -------------------------------------------------------------------------------------


def _dirichlet_rows(
    rng: np.random.Generator, shape: tuple[int, ...], num_states: int, concentration: float, support: int | None
) -> Floats:
    """Rows of shape (*shape, S), Dirichlet(concentration) on all states or on `support` random ones."""
    if not (np.isfinite(concentration) and concentration > 0):
        raise ValueError(f"concentration is {concentration}; it must be a finite number above 0")
    if support is None or support == num_states:
        return rng.dirichlet(np.full(num_states, concentration), size=shape)
    if whole("support", support, 1) > num_states:
        raise ValueError(f"support is {support}; it must not exceed the number of states, {num_states}")
    everyone = np.broadcast_to(np.arange(num_states), (*shape, num_states))
    chosen = rng.permuted(everyone, axis=-1)[..., :support]
    rows = np.zeros((*shape, num_states))
    np.put_along_axis(rows, chosen, rng.dirichlet(np.full(support, concentration), size=shape), axis=-1)
    return rows


def dirichlet(
    num_states: int = 5,
    num_actions: int = 3,
    horizon: int = 10,
    *,
    concentration: float = 0.3,
    support: int | None = None,
    num_rewarded: int = 3,
    instance: int = 0,
) -> FiniteMDP:
    """Random rows P(·|s,a) ~ Dirichlet(concentration); `num_rewarded` distinct cells pay means drawn from U[0.3, 1].

    `support` limits every row to that many successors, drawn without replacement.
    """
    S, A = whole("num_states", num_states, 1), whole("num_actions", num_actions, 1)
    if whole("num_rewarded", num_rewarded, 0) > S * A:
        raise ValueError(f"num_rewarded is {num_rewarded}; there are only {S * A} state-action cells")
    rng = _generator(instance)
    P = _dirichlet_rows(rng, (S, A), S, concentration, support)
    cells = rng.choice(S * A, num_rewarded, replace=False)
    r = np.zeros(S * A)
    r[cells] = rng.uniform(0.3, 1.0, num_rewarded)
    return FiniteMDP(P[None], r.reshape(1, S, A), _first(S), horizon, "dirichlet")


def nonstationary_dirichlet(
    num_states: int = 4, num_actions: int = 2, horizon: int = 8, *, concentration: float = 0.3, instance: int = 0
) -> FiniteMDP:
    """A fresh Dirichlet kernel at every step; from step ⌊H/2⌋ on one random cell per step pays 1."""
    S, A, H = whole("num_states", num_states, 1), whole("num_actions", num_actions, 1), whole("horizon", horizon, 1)
    rng = _generator(instance)
    P = _dirichlet_rows(rng, (H, S, A), S, concentration, None)
    paying = np.arange(H // 2, H)
    r = np.zeros((H, S * A))
    r[paying, rng.integers(S * A, size=len(paying))] = 1.0
    return FiniteMDP(P, r.reshape(H, S, A), _first(S), H, "nonstationary-dirichlet")


def random_rewards(num_states: int = 5, num_actions: int = 4, horizon: int = 10, *, instance: int = 0) -> FiniteMDP:
    """Rows Dirichlet(0.3); every cell pays with probability 0.4, and then a mean drawn from U[0, 1].

    The model behind the offline logs with uniform and with skewed behaviour.
    """
    S, A = whole("num_states", num_states, 1), whole("num_actions", num_actions, 1)
    rng = _generator(instance)
    P = _dirichlet_rows(rng, (S, A), S, 0.3, None)
    kept = rng.random((S, A)) < 0.4
    r = np.where(kept, rng.random((S, A)), 0.0)
    return FiniteMDP(P[None], r[None], _first(S), horizon, "random-uniform")


def adversarial_coverage() -> FiniteMDP:
    """Offline trap with 5 states, 8 actions, 10 steps: rarely logged actions that look good by luck are bad.

    In states 0–3 action 0 pays 0.5 and moves to the next of the four with probability 0.9, else stays. Action a ≥ 1
    pays 0.35 and leads to (s+a) mod 4 with probability 0.7, to the absorbing state 4 that pays nothing with 0.3.
    """
    P, r = np.zeros((5, 8, 5)), np.zeros((5, 8))
    for s in range(4):
        P[s, 0, (s + 1) % 4], P[s, 0, s] = 0.9, 0.1
        for a in range(1, 8):
            P[s, a, (s + a) % 4], P[s, a, 4] = 0.7, 0.3
    P[4, :, 4] = 1.0
    r[:4, 0], r[:4, 1:] = 0.5, 0.35
    return FiniteMDP(P[None], r[None], _first(5), 10, "adversarial-coverage")


# Behaviour policies of offline logs ----------------------------------------------------------------


def favouring(mdp: FiniteMDP, action: int, probability: float) -> Floats:
    """The policy (H, S, A) that plays `action` with `probability` and the other actions equally often."""
    H, S, A = mdp.shape
    if not 0 <= action < A:
        raise ValueError(f"action is {action}; it must lie in 0..{A - 1}")
    if not 0 <= probability <= 1 or (A == 1 and probability != 1):
        raise ValueError(f"probability is {probability}; it must lie in [0, 1], and be 1 when there is one action")
    policy = np.full((H, S, A), (1.0 - probability) / max(A - 1, 1))
    policy[..., action] = probability
    return policy


def uniform(mdp: FiniteMDP) -> Floats:
    """The policy (H, S, A) that plays all actions equally often."""
    return np.full(mdp.shape, 1.0 / mdp.num_actions)


# Hard instances for heavy-tailed rewards -----------------------------------------------------------


def heavy_joint_gap(num_bandits: int, num_actions: int, num_episodes: int, epsilon: float, v: float) -> float:
    """Δ = ((A−1)·n/(K·ε))^(v/(1+v)), the gap that the joint lower bound takes.   Source: [WZCW23] Thm. 8."""
    return float(((num_actions - 1) * num_bandits / (num_episodes * epsilon)) ** (v / (1 + v)))


def heavy_joint(
    num_states: int = 6,
    num_actions: int = 3,
    *,
    gap: float = 0.1,
    v: float = 0.5,
    reference: bool = False,
    instance: int = 0,
) -> FiniteMDP:
    """The joint lower-bound instance of [WZCW23, Fig. 1, App. E.1]: S−2 parallel bandits played for one step.

    With γ = (5·gap)^(1/v) an arm moves to state "+" (index S−2), else to "−" (index S−1), and pays 1/γ with the move
    to "+": probability 0.5·γ^(1+v) for arm 0, 0.3·γ^(1+v) for the others, except 0.7·γ^(1+v) for the best arm of the
    states whose best arm (drawn uniformly) is not arm 0. So E|r|^(1+v) ≤ 1 and neighbouring means differ by `gap`.
    The start is uniform over the bandits. `reference` is P̄₁ of the proof: arm 0 is best everywhere.

    Source: [WZCW23] Thm. 8.   Differs: 1. the reward is drawn given (s, a) by `two_point_law`, independently of
    whether the move went to "+".
    """
    S, A = whole("num_states", num_states, 3), whole("num_actions", num_actions, 2)
    if not 0 < v <= 1:
        raise ValueError(f"v is {v}; it must lie in (0, 1]")
    if not 0 < gap < 0.2:
        raise ValueError(f"gap is {gap}; it must lie in (0, 1/5)")
    n = S - 2
    gamma = (5 * gap) ** (1 / v)
    best = np.zeros(n, dtype=np.int64) if reference else _generator(instance).integers(A, size=n)
    tenths = np.full((n, A), 3.0)
    tenths[:, 0] = 5.0
    for s in np.flatnonzero(best):
        tenths[s, best[s]] = 7.0
    initial = np.zeros(S)
    initial[:n] = 1.0 / n
    return _plus_minus(
        np.zeros((S, A, S)), np.arange(n), tenths / 10 * gamma ** (1 + v), gamma, initial, 1, "heavy-joint"
    )


def heavy_local_success(num_leaves: int, num_actions: int, num_episodes: int, epsilon: float) -> float:
    """γ^(1+v) = L·A/(32·K·ε²), the chance of success that the local lower bound takes.   Source: [WZCW23] Thm. 9."""
    return num_leaves * num_actions / (32 * num_episodes * epsilon**2)


def heavy_local_gap(success: float, v: float) -> float:
    """½·γ^v, what the best leaf and action earn above all others, for γ^(1+v) = `success`."""
    return 0.5 * float(success ** (v / (1 + v)))


def heavy_local_size(depth: int, num_actions: int) -> tuple[int, int]:
    """(S, L): states, "+" and "−" included, and leaves of the tree."""
    leaves = num_actions**depth
    return (num_actions * leaves - 1) // (num_actions - 1) + 2, leaves


def heavy_local(
    depth: int = 2,
    num_actions: int = 2,
    *,
    success: float = 0.5,
    v: float = 0.5,
    reference: bool = False,
    instance: int = 0,
) -> FiniteMDP:
    """The local lower-bound instance of [WZCW23, Fig. 2]: a perfect A-ary tree whose leaves lead to "+" or "−".

    Actions choose the child; at one random (leaf, action) the move to "+" has probability `success` = γ^(1+v) ≤ 3/4,
    at all others half of that, and it pays 1/γ. States: the tree level by level, then "+", then "−". `reference`
    is ℙ₀ of the proof: no leaf is better, so no policy has any regret.

    Source: [WZCW23] Thm. 9.   Differs: 1. as in `heavy_joint`, the reward is drawn independently of the move; 2. it
    is paid with the move and not one step later, so H is one less.
    """
    d, A = whole("depth", depth, 1), whole("num_actions", num_actions, 2)
    if not 0 < v <= 1:
        raise ValueError(f"v is {v}; it must lie in (0, 1]")
    if not 0 < success <= 0.75:
        raise ValueError(f"success is {success}; it must lie in (0, 3/4]")
    S, leaves = heavy_local_size(d, A)
    inner = S - 2 - leaves
    P = np.zeros((S, A, S))
    for node in range(inner):
        for a in range(A):
            P[node, a, A * node + 1 + a] = 1.0
    chances = np.full(leaves * A, success / 2)
    if not reference:
        chances[_generator(instance).integers(leaves * A)] = success
    gamma = success ** (1 / (1 + v))
    return _plus_minus(
        P, np.arange(inner, inner + leaves), chances.reshape(leaves, A), gamma, _first(S), d + 1, "heavy-local"
    )


def two_point_law(mdp: FiniteMDP) -> RewardLaw:
    """The law of the hard instances: r = 1/γ with the probability of the move to "+", else 0, so E r = P(+)/γ."""
    paying = np.argwhere(mdp.rewards > 0)[0]
    return RewardLaw(
        "bernoulli", scale=float(mdp.rewards[tuple(paying)] / mdp.transitions[(*paying, mdp.num_states - 2)])
    )


def _plus_minus(
    P: Floats, states: NDArray[np.int64], chances: Floats, gamma: float, initial: Floats, horizon: int, name: str
) -> FiniteMDP:
    """Complete a kernel: `states` move to "+" with `chances` and then pay 1/γ, else to "−"; both absorb."""
    S, A, _ = P.shape
    plus, minus = S - 2, S - 1
    P[states, :, plus], P[states, :, minus] = chances, 1 - chances
    P[plus, :, plus], P[minus, :, minus] = 1.0, 1.0
    r = np.zeros((S, A))
    r[states] = chances / gamma
    return FiniteMDP(P[None], r[None], initial, horizon, name)


# Loop-free environments for adversarial losses -----------------------------------------------------


def layers(mdp: FiniteMDP) -> tuple[tuple[int, ...], ...]:
    """The states that some policy can be in at each step: the layers of a loop-free MDP."""
    reached, result = mdp.initial > 0, []
    for h in range(mdp.horizon):
        result.append(tuple(int(s) for s in np.flatnonzero(reached)))
        g = min(h, mdp.transitions.shape[0] - 1)
        reached = (mdp.transitions[g][reached] > 0).any(axis=(0, 1))
    return tuple(result)


def loss_means(rng: np.random.Generator, sizes: tuple[int, ...], num_actions: int) -> Floats:
    """Random mean losses ½·U(state) + ½·U(state, action) of shape (H, max size, A), 0 outside the layers."""
    H, S = len(sizes), max(sizes)
    result = np.zeros((H, S, num_actions))
    for h, size in enumerate(sizes):
        result[h, :size] = 0.5 * rng.random((size, 1)) + 0.5 * rng.random((size, num_actions))
    return result


def _loop_free(rows: list[Floats], losses: Floats, sizes: tuple[int, ...], name: str) -> FiniteMDP:
    """Embed layers of different sizes: layer h is the first sizes[h] states of step h; the last one ends in state 0.

    States beyond a layer cannot be reached; they lead to state 0. Mean rewards are 1 − mean loss.
    """
    H, S, A = losses.shape
    P = np.zeros((H, S, A, S))
    P[..., 0] = 1.0
    for h in range(H - 1):
        P[h, : sizes[h], :, :] = 0.0
        P[h, : sizes[h], :, : sizes[h + 1]] = rows[h]
    return FiniteMDP(P, 1.0 - losses, _first(S), H, name)


def layered(
    sizes: tuple[int, ...] = LAYERED, num_actions: int = 2, *, concentration: float = 0.3, instance: int = 0
) -> FiniteMDP:
    """A loop-free MDP with Dirichlet rows between layers of the given sizes, one step per layer.

    The mean losses ½·U(state) + ½·U(state, action) are drawn after the kernel; rewards are 1 − loss.
    """
    if not sizes or sizes[0] != 1:
        raise ValueError(f"layer sizes are {sizes}; the first layer must hold exactly one state")
    for h, size in enumerate(sizes):
        whole(f"size of layer {h}", size, 1)
    A = whole("num_actions", num_actions, 1)
    rng = _generator(instance)
    rows = [
        _dirichlet_rows(rng, (size, A), following, concentration, None)
        for size, following in itertools.pairwise(sizes)
    ]
    return _loop_free(rows, loss_means(rng, sizes, A), sizes, "layered")


def lock(*, instance: int = 0) -> FiniteMDP:
    """A combination lock: 6 steps, 3 actions; layer 0 is one good state, later layers are good (0) and bad (1).

    In every layer one random action stays good with probability 0.95, the others with 0.05; from the bad state every
    action returns with 0.02. The good chain costs 0.35 a step and the bad one 0.3, until the last layer, where good
    costs 0 and bad 0.9: only planning ahead finds it.
    """
    H, A = len(LOCK), 3
    combination = _generator(instance).integers(A, size=H - 1)
    rows = []
    for h in range(H - 1):
        stay = np.full((LOCK[h], A), 0.02)
        stay[0] = 0.05
        stay[0, combination[h]] = 0.95
        rows.append(np.stack([stay, 1 - stay], axis=-1))
    losses = np.zeros((H, 2, A))
    losses[:, 0], losses[1:, 1] = 0.35, 0.3
    losses[-1, 0], losses[-1, 1] = 0.0, 0.9
    return _loop_free(rows, losses, LOCK, "lock")
