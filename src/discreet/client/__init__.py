"""A learner's other end, inside an app or on a user's own device: numpy, `cryptography` and the standard library.

agent = discreet.client.connect(url, token, epsilon_at_most=1.0, default="none", cache="~/.shop")
with agent.episode(user_id) as e:      # a ticket, or a spectator when full or offline
    while not done:
        action = e.act(state)          # local table look-up, works offline
        state, reward, done = app.step(action)
        e.reward(reward)
    e.end(state)                       # where the last step led
# one report has been sent, or is kept and sent later with the same ticket

Signatures are checked by `cryptography`; everything else of a device needs numpy alone (discreet/device).
"""

from discreet.client.agent import Agent, connect
from discreet.client.episode import Episode
from discreet.device.wire import Refused

__all__ = ["Agent", "Episode", "Refused", "connect"]
