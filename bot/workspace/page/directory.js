// Who and what the ids in messages are, as the person whom we act as sees them.

export class Directory {
  constructor() {
    this.clear();
  }

  clear() {
    this.state = { team: {}, me: null, bot: {}, users: [], channels: [], groups: [], connected_sockets: 0 };
    this.users = new Map();
    this.channels = new Map();
    this.groups = new Map();
  }

  /** Take over an answer of `/page/state`. */
  load(state) {
    this.state = state;
    this.users = new Map(state.users.map((user) => [user.id, user]));
    this.channels = new Map(state.channels.map((channel) => [channel.id, channel]));
    this.groups = new Map((state.groups ?? []).map((group) => [group.id, group]));
  }

  me() {
    const me = this.state.me;
    return typeof me === "string" ? me : (me?.id ?? null);
  }

  user(id) {
    return this.users.get(id) ?? null;
  }

  userName(id) {
    const user = this.users.get(id);
    return user ? user.real_name || user.name : null;
  }

  userHandle(id) {
    return this.users.get(id)?.name ?? null;
  }

  groupName(id) {
    const group = this.groups.get(id);
    return group ? `@${group.handle ?? group.name}` : null;
  }

  channelName(id) {
    return this.channels.get(id)?.name || null;
  }

  channelHref(id) {
    return this.channels.has(id) ? this.href({ channel: id }) : null;
  }

  /** The address of a channel or thread on this page, for the person whom we act as. */
  href({ channel, thread = null, as = this.me() }) {
    const path = [channel, thread].filter(Boolean).join("/");
    return `#/${path}${as ? `?as=${encodeURIComponent(as)}` : ""}`;
  }

  /** The app that is installed here, as a user. */
  bot() {
    return this.users.get(this.state.bot?.user_id) ?? { name: this.state.bot?.name ?? "app", is_bot: true };
  }

  people() {
    return this.state.users.filter((user) => !user.is_bot && !user.deleted);
  }

  /** The person on the other side of a direct message. */
  counterpart(channel) {
    const other = (channel.members ?? []).find((id) => id !== this.me());
    return this.user(other) ?? this.bot();
  }

  /** What a conversation is called: `ops`, or a person's name. */
  title(channel) {
    if (!channel) return "";
    return channel.is_im ? this.counterpart(channel).real_name || this.counterpart(channel).name : channel.name;
  }
}
