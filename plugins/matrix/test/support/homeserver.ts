import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

interface Media {
  readonly bytes: Uint8Array;
  /** Served by the older endpoint alone. */
  readonly isLegacy?: boolean;
}

interface Behavior {
  /** Takes requests and never answers them. */
  hangs: boolean;
  /** Rooms that may still be created; then it answers 429 with `retryAfterMs`. */
  roomsLeft: number;
  retryAfterMs: number;
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
  readonly rooms: Map<string, { invited: string[]; state: Map<string, object> }>;
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
    rooms: new Map<string, { invited: string[]; state: Map<string, object> }>(),
    aliases: new Map<string, string>(),
    requests: [] as { line: string; token: string | undefined }[],
    behavior: { hangs: false, roomsLeft: Number.POSITIVE_INFINITY, retryAfterMs: 1000 },
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
};

interface Asked {
  readonly home: Home;
  readonly user: string | undefined;
  readonly parts: readonly string[];
  readonly body: Record<string, unknown>;
}

async function answer(request: IncomingMessage, response: ServerResponse, home: Home) {
  const { method = '', url = '', headers } = request;
  const token = headers.authorization?.replace('Bearer ', '');
  home.requests.push({ line: `${method} ${url}`, token });
  if (home.behavior.hangs) return;
  const parts = url.split('/').map(decodeURIComponent);
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  const asked = {
    home,
    parts,
    user: home.users.get(token ?? ''),
    body: text ? JSON.parse(text) : {},
  };
  const result = routes.find(([line]) => line.test(`${method} ${url}`))?.[1](asked);
  if (result instanceof Uint8Array) return void response.end(result);
  const { status = result ? 200 : 404 } = (result ?? {}) as { status?: number };
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(result ?? { errcode: 'M_NOT_FOUND', error: 'no such thing' }));
}

const refused = (status: number, errcode: string) => ({ status, errcode, error: errcode });

const routes: readonly (readonly [RegExp, (asked: Asked) => object | undefined])[] = [
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
  home.rooms.set(roomId, { invited: [], state: new Map() });
  return { room_id: roomId };
}
