import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

interface Media {
  readonly bytes: Uint8Array;
  /** Served by the older endpoint alone. */
  readonly isLegacy?: boolean;
}

/** An event in a room. */
export interface TestEvent {
  readonly event_id: string;
  readonly type: string;
  readonly sender: string;
  readonly state_key?: string;
  // biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
  readonly content: any;
  readonly redacts?: string;
}

/** Something that a user of the oracle's account sees. */
interface Logged {
  readonly roomId: string;
  /** Without it, an invitation. */
  readonly event?: TestEvent;
  readonly inviter?: string;
}

interface Behavior {
  /** Whether files have no `Content-Length`. */
  hidesSizes: boolean;
  /** Events of a room that a sync returns. */
  timelineLength: number;
  /** How many of the next messages are answered with 429. */
  limitedSends: number;
  /** Takes requests and never answers them. */
  hangs: boolean;
  /** Rooms that may still be created; then it answers 429 with `retryAfterMs`. */
  roomsLeft: number;
  retryAfterMs: number;
}

interface TestRoom {
  readonly invited: string[];
  readonly state: Map<string, object>;
  readonly members: Set<string>;
}

/** As much of a Matrix homeserver as the plugin asks for. */
export interface TestHomeserver {
  readonly url: string;
  readonly host: string;
  /** Token → user id. */
  readonly users: Map<string, string>;
  readonly media: Map<string, Media>;
  /** `room event` → the event. */
  readonly events: Map<string, object>;
  readonly rooms: Map<string, TestRoom>;
  /** What happened, oldest first; a position in it is the token of a sync. */
  readonly log: Logged[];
  /** `METHOD path` and the token of every request. */
  readonly requests: { readonly line: string; readonly token: string | undefined }[];
  /** Changes how it behaves. */
  readonly behavior: Behavior;
  close(): Promise<void>;
}

export async function startHomeserver(): Promise<TestHomeserver> {
  const home = {
    users: new Map<string, string>(),
    media: new Map<string, Media>(),
    events: new Map<string, object>(),
    rooms: new Map<string, TestRoom>(),
    log: [] as Logged[],
    transactions: new Map<string, string>(),
    aliases: new Map<string, string>(),
    requests: [] as { line: string; token: string | undefined }[],
    behavior: {
      hangs: false,
      hidesSizes: false,
      roomsLeft: Number.POSITIVE_INFINITY,
      retryAfterMs: 1000,
      timelineLength: 50,
      limitedSends: 0,
    },
  };
  const server = createServer((request, response) => void answer(request, response, home));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const close = () => {
    server.closeAllConnections();
    return new Promise<void>((resolve) => server.close(() => resolve()));
  };
  return { ...home, url: `http://127.0.0.1:${port}`, host: `127.0.0.1:${port}`, close };
}

/** Makes the oracle a user of this homeserver; what its environment needs for that. */
export function withOracle({ users, url }: TestHomeserver): Record<string, string> {
  users.set('oracle-token', '@oracle:test');
  return {
    MATRIX_BASE_URL: url,
    MATRIX_ACCESS_TOKEN: 'oracle-token',
    OUTGOING_ALLOW: '127.0.0.1',
  };
}

type Home = Omit<TestHomeserver, 'url' | 'host' | 'close'> & {
  readonly aliases: Map<string, string>;
  /** Transaction id → event id. */
  readonly transactions: Map<string, string>;
};

interface Asked {
  readonly home: Home;
  readonly user: string | undefined;
  readonly parts: readonly string[];
  readonly query: URLSearchParams;
  readonly body: Record<string, unknown>;
}

async function answer(request: IncomingMessage, response: ServerResponse, home: Home) {
  const { method = '', url = '', headers } = request;
  const token = headers.authorization?.replace('Bearer ', '');
  home.requests.push({ line: `${method} ${url}`, token });
  if (home.behavior.hangs) return;
  const [path = '', search = ''] = url.split('?');
  const parts = path.split('/').map(decodeURIComponent);
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  const asked = {
    home,
    parts,
    user: home.users.get(token ?? ''),
    query: new URLSearchParams(search),
    body: headers['content-type'] === 'application/json' && text ? JSON.parse(text) : { text },
  };
  const result = await routes.find(([line]) => line.test(`${method} ${path}`))?.[1](asked);
  if (result instanceof Uint8Array) {
    // Otherwise Node announces the length.
    if (home.behavior.hidesSizes) response.flushHeaders();
    return void response.end(result);
  }
  const { status = result ? 200 : 404 } = (result ?? {}) as { status?: number };
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(result ?? { errcode: 'M_NOT_FOUND', error: 'no such thing' }));
}

const refused = (status: number, errcode: string) => ({ status, errcode, error: errcode });

type Route = (asked: Asked) => object | undefined | Promise<object | undefined>;

const routes: readonly (readonly [RegExp, Route])[] = [
  [/^GET .*\/sync$/, sync],
  [/^GET .*\/rooms\/[^/]+\/messages$/, listMessages],
  [/^PUT .*\/send\/m.room.message\//, receiveMessage],
  [/^PUT .*\/typing\//, () => ({})],
  [
    /^POST .*\/join\/[^/]+$/,
    ({ home, parts, user = '' }) => {
      const roomId = String(parts.at(-1));
      home.rooms.get(roomId)?.members.add(user);
      addEvent(home, roomId, { ...memberEvent(user, 'join'), sender: user });
      return { room_id: roomId };
    },
  ],
  [
    /^POST .*\/leave$/,
    ({ home, parts, user = '' }) => {
      home.rooms.get(String(parts[5]))?.members.delete(user);
      return {};
    },
  ],
  [
    /^GET .*\/joined_members$/,
    ({ home, parts }) => {
      const members = home.rooms.get(String(parts[5]))?.members ?? [];
      return { joined: Object.fromEntries([...members].map((id) => [id, {}])) };
    },
  ],
  [
    /^POST \/_matrix\/media\/v3\/upload$/,
    ({ home, body }) => {
      const id = randomUUID();
      home.media.set(id, { bytes: Buffer.from(String(body.text)) });
      return { content_uri: `mxc://test/${id}` };
    },
  ],
  [
    /^GET .*\/account\/whoami$/,
    ({ user }) => (user ? { user_id: user } : refused(401, 'M_UNKNOWN_TOKEN')),
  ],
  [/^GET \/_matrix\/client\/versions$/, () => ({ versions: ['v1.11'] })],
  [/^POST .*\/createRoom$/, createRoom],
  [
    /^GET .*\/directory\/room\//,
    ({ home, parts }) => {
      const roomId = home.aliases.get(String(parts.at(-1)));
      return roomId === undefined ? undefined : { room_id: roomId };
    },
  ],
  [
    /^POST .*\/invite$/,
    ({ home, parts, body }) => {
      home.rooms.get(String(parts[5]))?.invited.push(String(body.user_id));
      return {};
    },
  ],
  [
    /^PUT .*\/state\//,
    ({ home, parts, body }) => {
      home.rooms.get(String(parts[5]))?.state.set(String(parts[8]), body);
      return { event_id: '$1' };
    },
  ],
  [
    /^GET .*\/state\//,
    ({ home, parts }) => home.rooms.get(String(parts[5]))?.state.get(String(parts[8])),
  ],
  [/^GET .*\/event\//, ({ home, parts }) => home.events.get(`${parts[5]} ${parts[7]}`)],
  [
    /^GET \/_matrix\/client\/v1\/media\/download\//,
    ({ home, parts, user }) => {
      const media = home.media.get(String(parts.at(-1)));
      if (media?.isLegacy) return undefined;
      return user ? media?.bytes : refused(401, 'M_MISSING_TOKEN');
    },
  ],
  [
    /^GET \/_matrix\/media\/v3\/download\//,
    ({ home, parts }) => home.media.get(String(parts.at(-1)))?.bytes,
  ],
];

function createRoom({ home, user, body }: Asked): object {
  const { behavior } = home;
  if (behavior.roomsLeft <= 0)
    return { ...refused(429, 'M_LIMIT_EXCEEDED'), retry_after_ms: behavior.retryAfterMs };
  behavior.roomsLeft -= 1;
  const alias = `#${body.room_alias_name}:${user?.split(':').slice(1).join(':')}`;
  if (home.aliases.has(alias)) return refused(400, 'M_ROOM_IN_USE');
  const roomId = `!${randomUUID()}:test`;
  home.aliases.set(alias, roomId);
  home.rooms.set(roomId, { invited: [], state: new Map(), members: new Set([user ?? '']) });
  return { room_id: roomId };
}

const memberEvent = (user: string, membership: string) => ({
  type: 'm.room.member',
  state_key: user,
  content: { membership },
});

let events = 0;

/** Adds an event to a room; returns its id. */
export function addEvent(
  { log }: Pick<TestHomeserver, 'log'>,
  roomId: string,
  event: Omit<TestEvent, 'event_id'>,
): string {
  events += 1;
  const eventId = `$event${events}`;
  log.push({ roomId, event: { ...event, event_id: eventId } });
  return eventId;
}

/** A room of these users that the oracle is invited to; it exists for the oracle once it has joined. */
export function inviteOracle(home: TestHomeserver, members: readonly string[]): string {
  const roomId = `!${randomUUID()}:test`;
  home.rooms.set(roomId, { invited: [], state: new Map(), members: new Set(members) });
  home.log.push({ roomId, inviter: members[0] ?? '' });
  return roomId;
}

/** Waits for news after `since`, at most as long as asked. */
async function sync({ home, user = '', query }: Asked): Promise<object> {
  const since = query.get('since');
  const from = Number(since ?? 0);
  const deadline = performance.now() + Math.min(Number(query.get('timeout') ?? 0), 2_000);
  while (home.log.length <= from && performance.now() < deadline)
    await new Promise((resolve) => setTimeout(resolve, 20));
  const to = home.log.length;
  const news = home.log.slice(from, to).map((entry, i) => ({ ...entry, at: from + i }));
  const join: Record<string, object> = {};
  const invite: Record<string, object> = {};
  for (const { roomId, inviter } of news) {
    const isMember = home.rooms.get(roomId)?.members.has(user);
    const state = [{ type: 'm.room.member', sender: inviter, state_key: user, content: {} }];
    if (!isMember && inviter) invite[roomId] = { invite_state: { events: state } };
    const seen = news.filter((entry) => entry.roomId === roomId && entry.event);
    const { timelineLength } = home.behavior;
    if (isMember && seen.length > 0)
      join[roomId] = {
        timeline: {
          events: seen.slice(-timelineLength).map(({ event }) => event),
          limited: seen.length > timelineLength,
          prev_batch: String(seen.at(-timelineLength)?.at ?? from),
        },
      };
  }
  return { next_batch: String(to), rooms: { join, invite } };
}

/** Before `from`, newest first, one at a time, so that reading all of them takes pages. */
function listMessages({ home, parts, query }: Asked): object {
  const [from, to] = [Number(query.get('from')), Number(query.get('to'))];
  for (let at = from - 1; at >= to; at -= 1) {
    const entry = home.log[at];
    if (entry?.event && entry.roomId === parts[5]) return { chunk: [entry.event], end: String(at) };
  }
  return { chunk: [] };
}

/** Accepts each transaction once. */
function receiveMessage({ home, parts, user = '', body }: Asked): object {
  if (home.behavior.limitedSends > 0) {
    home.behavior.limitedSends -= 1;
    const { retryAfterMs } = home.behavior;
    return { ...refused(429, 'M_LIMIT_EXCEEDED'), retry_after_ms: retryAfterMs };
  }
  const transaction = String(parts.at(-1));
  const known = home.transactions.get(transaction);
  if (known) return { event_id: known };
  const event = { type: 'm.room.message', sender: user, content: body };
  const eventId = addEvent(home, String(parts[5]), event);
  home.transactions.set(transaction, eventId);
  return { event_id: eventId };
}
