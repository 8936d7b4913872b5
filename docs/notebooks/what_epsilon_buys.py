"""What ε buys: move ε and the number of people, see the noise, and what it costs. marimo edit what_epsilon_buys.py"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="What ε buys")


@app.cell
def _():
    import marimo as mo
    import numpy as np
    from matplotlib.figure import Figure

    import discreet

    return Figure, discreet, mo, np


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # What ε buys

    ε says how much anything that is published may depend on one person: with ε, whatever others see was at most e^ε times as
    likely with her episode as with anybody else's. It is paid for with noise, and noise with people. This notebook shows both
    on one small problem.

    People are simulated and noise is drawn from a seed, so that you see the same numbers every time. In earnest, noise is
    drawn from cryptographic randomness.
    """)
    return


@app.cell
def _(discreet):
    #          resting  warming  in form  fed up   tomorrow; rows: wait, nudge
    moves = [
        [[0.9, 0.1, 0.0, 0.0], [0.3, 0.6, 0.0, 0.1]],  # resting
        [[0.5, 0.4, 0.1, 0.0], [0.0, 0.3, 0.5, 0.2]],  # warming up
        [[0.0, 0.2, 0.8, 0.0], [0.0, 0.0, 0.5, 0.5]],  # in form
        [[0.4, 0.0, 0.0, 0.6], [0.0, 0.0, 0.0, 1.0]],  # fed up
    ]
    trains = [[0.0, 0.0], [0.3, 0.3], [0.9, 0.9], [0.0, 0.0]]
    coach = discreet.FiniteMDP(moves, trains, [1, 0, 0, 0], horizon=14, name="coach")
    best = discreet.policy_value(coach, discreet.optimal_plan(coach).policy)
    random = discreet.policy_value(coach, discreet.uniform_policy(coach.shape))
    return best, coach, random


@app.cell(hide_code=True)
def _(best, mo, random):
    mo.md(f"""
    An app may nudge its user once a day, for 14 days. The best policy is worth **{best:.2f}** trainings, nudging at
    random **{random:.2f}**.
    """)
    return


@app.cell
def _(mo):
    epsilon = mo.ui.slider(
        steps=[0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0], value=1.0, label="ε per person", show_value=True
    )
    users = mo.ui.slider(steps=[500, 1000, 2000, 5000, 10000], value=2000, label="people", show_value=True)
    mo.vstack([epsilon, users])
    return epsilon, users


@app.cell
def _(epsilon, mo, np):
    odds = float(np.exp(epsilon.value))
    mo.md(f"""
    At ε = {epsilon.value:g} somebody who holds two stories about you for equally likely believes one of them with odds of at
    most **{odds:.2f} : 1** after seeing everything that was published.
    """)
    return (odds,)


@app.cell
def _(coach, discreet, epsilon, np):
    def scale_of(privatizer):
        """The noise of one count, as the ledger of a stream states it."""
        spec = discreet.CountSpec(coach.num_states, coach.num_actions, coach.horizon, pooled=True)
        return privatizer.open(spec, 1, discreet.NoiseSource.seeded(0)).guarantee.entries[0].scale

    scale = scale_of(discreet.OneShot(discreet.Budget.pure(epsilon.value)))
    noise = np.asarray(discreet.NoiseSource.seeded(1).laplace(scale, (4000,)))
    return noise, scale


@app.cell
def _(Figure, coach, epsilon, mo, noise, scale, users):
    cell = users.value * coach.horizon / (coach.num_states * coach.num_actions)
    _figure = Figure(figsize=(7, 2.6), layout="constrained")
    _axes = _figure.add_subplot()
    _axes.hist(cell + noise, bins=80, color="tab:orange", alpha=0.8)
    _axes.axvline(cell, color="black", label="true count")
    _axes.set(
        xlabel="what is released of one count", yticks=[], title=f"ε = {epsilon.value:g}, {users.value:,} people"
    )
    _axes.legend()
    mo.vstack(
        [
            mo.md(f"""
    ## The noise

    Replacing one person moves up to {2 * coach.horizon} visits in the table of counts, and three tables share ε. So a count gets
    noise of scale **{scale:.0f}**; an evenly visited cell holds **{cell:,.0f}** visits. The noise does not grow with
    the number of people: that is why more of them help.
    """),
            _figure,
        ]
    )
    return (cell,)


@app.cell
def _(coach, discreet, epsilon, users):
    def regret(learner, budget=None):
        said = {"env": coach, "episodes": users.value, "pooled": True, "epsilon": budget}
        return discreet.run_seeds(discreet.Experiment(learner, **said), range(3))

    learned = {
        "without privacy": regret("ucbvi-bernstein"),
        "Spotlight: one step per person": regret("spotlight", epsilon.value),
        "DP-UCBVI: all steps counted": regret("dp-ucbvi", epsilon.value),
    }
    return (learned,)


@app.cell
def _(learned, mo, np):
    price = {
        name: {
            "guarantee": runs[0].guarantee.sentence(),
            "regret of random": round(float(np.mean([run.regret_ratio for run in runs])), 3),
            "worst seed": round(max(run.regret_ratio for run in runs), 3),
            "last policy is worth": round(float(np.mean([run.final_value for run in runs])), 2),
        }
        for name, runs in learned.items()
    }
    mo.vstack(
        [
            mo.md("""
    ## The price

    What people lost while it was learned, over what they lose with random nudges: 0 is perfect, 1 means that nothing was
    learned. Three seeds each.
    """),
            mo.ui.table([{"learner": name, **row} for name, row in price.items()], selection=None),
        ]
    )
    return (price,)


@app.cell
def _(Figure, learned, np):
    _figure = Figure(figsize=(7, 3), layout="constrained")
    _axes = _figure.add_subplot()
    for _name, _runs in learned.items():
        _at = _runs[0].checkpoints
        _paid = np.array([run.random_regret * _at / _at[-1] for run in _runs])
        _axes.plot(_at, (np.array([run.regret for run in _runs]) / _paid).mean(axis=0), label=_name)
    _axes.axhline(1.0, color="0.6", linestyle="--", label="random")
    _axes.set(xscale="log", xlabel="people", ylabel="regret so far / random", ylim=(0, None))
    _axes.legend(fontsize="small")
    _figure
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Try

    - ε = 0.1 and 500 people: the private learners learn nothing. Which slider helps more?
    - Halve ε and double the people: the price stays about the same, or falls. What counts is ε × people.
    - The two private learners promise the same. Spotlight asks everybody for one step only, so that its counts need noise of
      scale 2/ε instead of the one above.
    """)
    return


if __name__ == "__main__":
    app.run()
