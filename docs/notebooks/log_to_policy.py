"""From a log to a policy one can defend: a fit, a comparison, a certificate. marimo edit log_to_policy.py"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="From a log to a policy one can defend")


@app.cell
def _():
    import tempfile
    from pathlib import Path

    import marimo as mo
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    import discreet

    return Path, discreet, mo, np, pa, pq, tempfile


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # From a log to a policy one can defend

    A pharmacy has logged what it did: who came how often, whether somebody was reminded, and who took their medicine. It wants
    a rule for reminders, and it wants to be able to answer four questions about it: **what was promised to the people in the
    log, is the rule better than what we do now, how sure are you, and who can check that?**

    The people are simulated here. Noise is drawn from cryptographic randomness, as it must be, so that numbers differ a
    little whenever the notebook is run.
    """)
    return


@app.cell
def _(np, pa):
    def log(people, seed):
        """Weeks of people: adherence in percent, a call, a letter or nothing, and whether medicine was taken."""
        rng = np.random.default_rng(seed)
        who, adherence, rows = np.arange(people), rng.uniform(20, 100, people), []
        for week in range(6):
            habit = np.where(adherence < 40, 2, 0)  # calls for those who are worst off
            action = np.where(rng.random(people) < 0.5, habit, rng.integers(3, size=people))
            effect = np.choose(
                action, [-6.0, np.where(adherence > 55, 8.0, -4.0), np.where(adherence < 55, 14.0, -8.0)]
            )
            rows.append(
                {
                    "person": [f"{seed}-{i}" for i in who],
                    "week": np.full(people, week),
                    "adherence": adherence.round(1),
                    "action": np.array(["nothing", "letter", "call"])[action],
                    "p_action": 1 / 6 + 0.5 * (action == habit),
                    "taken": (rng.random(people) < adherence / 100).astype(float),
                }
            )
            adherence = np.clip(adherence + effect + rng.normal(0, 5, people), 0, 100)
        return pa.concat_tables([pa.table(row) for row in rows])

    return (log,)


@app.cell
def _(mo):
    epsilon = mo.ui.slider(steps=[0.25, 0.5, 1.0, 2.0, 4.0], value=1.0, label="ε per person", show_value=True)
    epsilon
    return (epsilon,)


@app.cell
def _(Path, log, pq, tempfile):
    folder = Path(tempfile.mkdtemp(prefix="discreet-notebook-"))
    pq.write_table(log(8000, 1), folder / "log.parquet")
    pq.write_table(log(8000, 2), folder / "others.parquet")  # kept aside: nobody is both learned from and asked
    return (folder,)


@app.cell
def _(discreet, mo):
    declaration = discreet.Declaration.from_toml("""
    user = "person"
    time = "week"
    interval = "1s"                      # the column counts weeks
    horizon = 6
    action = "action"
    actions = ["nothing", "letter", "call"]
    propensity = "p_action"
    reward = "taken"
    reward_range = [0, 1]

    [[state]]
    name = "adherence"
    range = [0, 100]
    edges = [25, 40, 55, 70, 85]
    """)
    mo.md(f"""
    ## 1. Say what is public

    Ranges, edges and names come from what is known of the subject, never from the data. That is all the program is told:

    ```toml
    {declaration.text}
    ```
    """)
    return (declaration,)


@app.cell
def _(Path, declaration, discreet, epsilon, folder, tempfile):
    budget = discreet.Budget.pure(epsilon.value)
    fitted = discreet.fit(folder / "log.parquet", declaration, budget, purpose="reminders", operator="a pharmacy")
    policy_folder = Path(tempfile.mkdtemp(dir=folder)) / "policy"
    fitted.save(policy_folder)
    return budget, fitted, policy_folder


@app.cell
def _(fitted, mo):
    def rule(policy):
        """What is done in the first week, by adherence; "as now" where nothing better is known."""
        middles = {"below 25": 10, "25 to 40": 30, "40 to 55": 50, "55 to 70": 60, "70 to 85": 80, "85 and more": 95}
        return [{"adherence": name, "do": policy.act({"adherence": x}, step=0)} for name, x in middles.items()]

    learned = rule(fitted.policy)
    mo.vstack(
        [
            mo.md(f"""
    ## 2. Learn

    **What was promised to the people in the log?** {fitted.certificate["guarantee"]["sentence"]}. A ledger beside the log adds up
    what was spent on these people: every time you move the slider, that is one more release of the same people. In
    earnest you would decide once, and set a limit.
    """),
            mo.ui.table(learned, selection=None),
        ]
    )
    return (learned,)


@app.cell
def _(budget, discreet, folder, mo, policy_folder):
    # Where nothing better than current practice is known anywhere, there is nothing to ask, and nothing is spent.
    knows = bool(discreet.Policy.load(policy_folder).known.any())
    others, own = folder / "others.parquet", [folder / "log.parquet"]
    answer = discreet.compare(policy_folder, others, budget, rollout=0.5, learned_from=own) if knows else None
    found = "nothing better than what is done now was found" if answer is None else answer.sentence
    mo.md(f"""
    ## 3. Ask other people

    **Is it better than what we do now, and how sure are you?** 8,000 people who were not learned from answer, about a roll-out
    in which every second decision is the policy's: {found}.
    """)
    return (answer,)


@app.cell
def _(answer, discreet, mo, policy_folder):
    verdict = discreet.verify(policy_folder)
    files = sorted(path.name for path in policy_folder.iterdir())
    mo.md(f"""
    ## 4. Hand it over

    **Who can check that?** Everybody who gets the folder: `discreet verify` derives each number of the certificate again. It
    says: {"consistent" if verdict.consistent else "NOT consistent"}. In the folder: {", ".join(files)}; `certificate.html` is
    the page for those who decide{"" if answer is None else ", with the answer above on it"}.
    """)
    return files, verdict


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Try

    - ε = 0.25: is the rule still the same? Is the bound?
    - Change what people do in `log` so that letters help nobody. Does the rule notice?
    - Learn from `others.parquet` and ask `log.parquet`.
    """)
    return


if __name__ == "__main__":
    app.run()
