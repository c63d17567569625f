"""The people and channels a new workspace starts with."""

from __future__ import annotations

from bot.workspace.state import COLORS, Channel, Group, State, User

PEOPLE = (
    ("U0LOCALANA", "ana", "Ana Ruiz", "On call"),
    ("U0LOCALBEN", "ben", "Ben Okafor", "Team lead"),
    ("U0LOCALCLEO", "cleo", "Cleo Martin", "Support"),
    ("U0LOCALDEV", "dev", "Dev Rao", "SRE"),
)
CHANNELS = (
    ("C0LOCALOPS", "ops", "Day to day operations", True),
    ("C0LOCALREL", "releases", "What ships, and when", True),
    ("C0LOCALINC", "incidents", "When something burns", True),
    ("C0LOCALRND", "random", "Anything else; the app is not a member here", False),
)
CREATED = 1_790_000_000  # seconds since 1970; only shown as the channels' date of creation


def default_state() -> State:
    """A small team with the app installed: the default seed, in which Ana is the person to act as."""
    state = State()
    for number, (user_id, name, real_name, title) in enumerate(PEOPLE):
        email = f"{name}@example.com"
        state.users[user_id] = User(
            user_id, name, real_name, title, email, COLORS[number % len(COLORS)], state.team_id
        )
    state.users["U0LOCALBEN"].is_admin = True
    state.users[state.bot_user_id] = User(
        id=state.bot_user_id,
        name=state.app_name,
        real_name=state.app_name,
        title="App",
        color="3b3f8f",
        team_id=state.team_id,
        is_bot=True,
        bot_id=state.bot_id,
        app_id=state.app_id,
    )
    state.groups["S0LOCALSRE"] = Group("S0LOCALSRE", "sre", "Site reliability", ["U0LOCALBEN", "U0LOCALDEV"])
    people = [user_id for user_id, *_ in PEOPLE]
    for channel_id, name, topic, with_bot in CHANNELS:
        members = [*people, state.bot_user_id] if with_bot else list(people)
        state.channels[channel_id] = Channel(
            channel_id, name, topic, created=CREATED, creator="U0LOCALBEN", members=members
        )
    return state
