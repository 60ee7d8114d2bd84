import { z } from 'zod';

const flag = z.enum(['true', 'false']).transform((value) => value === 'true');
const whole = z
  .string()
  .regex(/^\d{1,9}$/, { error: 'must be a whole number' })
  .transform(Number);
const positive = whole.refine((value) => value > 0, { error: 'must be at least 1' });
/** Timers hold less than 25 days. */
const MAX_SECONDS = 86_400;
const seconds = positive.refine((value) => value <= MAX_SECONDS, {
  error: `must be at most ${MAX_SECONDS}, which is a day`,
});
const port = whole.refine((value) => value <= 65_535, { error: 'must be a port, at most 65535' });
const did = z.string().regex(/^did:[a-z0-9]+:\S+$/, { error: 'must be a DID, such as did:web:…' });

const SIZE = /^(\d{1,6})(kb|mb)?$/;
const byteFactors = { kb: 1024, mb: 1024 * 1024 };
const size = z
  .string()
  .toLowerCase()
  .regex(SIZE, { error: 'must be a size, such as 512kb or 64mb' })
  .transform((text) => {
    const [, digits, unit] = SIZE.exec(text) ?? [];
    return Number(digits) * (byteFactors[unit as keyof typeof byteFactors] ?? 1);
  });

const list = z.string().transform((text) =>
  text
    .split(',')
    .map((item) => item.trim())
    .filter(Boolean),
);

const origins = list.refine((items) => items.every((item) => item === '*' || isOrigin(item)), {
  error: 'must be * or origins such as https://app.example, separated by commas',
});

/** Names reserved by gRPC and HTTP, and the height, which has its own header. */
const RESERVED_METADATA =
  /^grpc-|^(te|host|connection|content-type|content-length|user-agent|authorization|transfer-encoding|x-cosmos-block-height)$/;
const MAX_METADATA_NAMES = 16;
const metadataNames = list
  .transform((names) => names.map((name) => name.toLowerCase()))
  .refine((names) => names.length <= MAX_METADATA_NAMES, {
    error: `must be at most ${MAX_METADATA_NAMES} names`,
  })
  .refine(
    (names) =>
      names.every((name) => /^[a-z0-9_.-]{1,64}$/.test(name) && !RESERVED_METADATA.test(name)),
    { error: 'must be names of metadata such as x-tenant, separated by commas' },
  );

function isOrigin(text: string): boolean {
  return URL.canParse(text) && new URL(text).origin === text;
}

/** An API key as configured: only its digest. */
export interface ApiKey {
  /** For logs and metrics. */
  readonly name: string;
  readonly sha256: Buffer;
  /** Requests per minute. */
  readonly limit: number | undefined;
  /** Allowed route templates, with an optional `*` at the end; default: all. */
  readonly scopes: readonly string[] | undefined;
}

const FORM = /^([0-9a-f]{64})((?:;[a-z]+=[^;]*)*)$/i;
const NAME = /^[\w.-]{1,64}$/;
const LIMIT = /^[1-9]\d{0,8}$/;
const SCOPE = /^\/[^\s*]*\*?$/;

/** Parses one entry of GATEWAY_API_KEYS: the digest, then optional `;name=`, `;limit=` and `;scope=`. */
export const ApiKey = z.string().transform((text, context): ApiKey => {
  const [, digest = '', rest = ''] = FORM.exec(text) ?? [];
  const { name = digest.slice(0, 8), limit, scope, ...others } = parseParameters(rest);
  const scopes = scope?.split('|');
  const problem =
    (!digest && 'must be 64 hex digits each, then ;name=…, ;limit=… or ;scope=…') ||
    (Object.keys(others).length > 0 && `has an unknown ;${Object.keys(others)[0]}=`) ||
    (!NAME.test(name) && 'has an invalid name') ||
    (limit !== undefined && !LIMIT.test(limit) && 'has an invalid limit') ||
    (scopes && !scopes.every((item) => SCOPE.test(item)) && 'has an invalid scope');
  if (problem) {
    context.addIssue({ code: 'custom', message: problem });
    return z.NEVER;
  }
  return {
    name,
    sha256: Buffer.from(digest, 'hex'),
    limit: limit === undefined ? undefined : Number(limit),
    scopes,
  };
});

function parseParameters(text: string): Record<string, string> {
  const pairs = text.split(';').filter(Boolean);
  return Object.fromEntries(pairs.map((pair) => pair.split(/=(.*)/, 2) as [string, string]));
}

/** A node's address and its configured history. */
export interface UpstreamAddress {
  readonly url: URL;
  /** The first height the node keeps, if configured. */
  readonly from: number | undefined;
  /** The RPC of a gRPC node, if configured. */
  readonly rpc: URL | undefined;
}

const PROTOCOLS = ['grpc:', 'grpcs:', 'rpc+http:', 'rpc+https:'];

/** Parses one entry of GATEWAY_UPSTREAMS. */
export const UpstreamUrl = z.string().transform((text, context): UpstreamAddress => {
  const fail = (message: string) => {
    // The message omits the entry: it may contain a password.
    context.addIssue({ code: 'custom', message });
    return z.NEVER;
  };
  if (!URL.canParse(text)) return fail('must be URLs such as grpc://127.0.0.1:9090');
  const url = new URL(text);
  const from = url.searchParams.get('from');
  const rpc = url.searchParams.get('rpc');
  const problem = findProblem(url, from, rpc);
  if (problem) return fail(problem);
  for (const own of ['from', 'rpc']) url.searchParams.delete(own);
  return {
    url,
    from: from === null ? undefined : Number(from),
    rpc: rpc === null ? undefined : new URL(rpc),
  };
});

function findProblem(url: URL, from: string | null, rpc: string | null): string | undefined {
  if (!PROTOCOLS.includes(url.protocol)) return `must start with one of ${names()}`;
  if (!url.hostname) return 'must name a host';
  if (url.protocol.startsWith('grpc') && !url.port) return `needs the port of ${url.host}`;
  if (from !== null && !/^[1-9]\d{0,14}$/.test(from)) return 'has an invalid ?from=';
  if (rpc === null) return findUnusable(url);
  if (URL.canParse(rpc) && /^https?:/.test(rpc)) return findUnusable(url, new URL(rpc));
  return 'has an invalid ?rpc=, which must be a URL such as http://127.0.0.1:26657';
}

/** Parts that no connection can use. */
function findUnusable(...urls: readonly URL[]): string | undefined {
  if (urls.some(({ hash }) => hash)) return 'must have no #; write %23 in a user or password';
  if (urls.every((url) => isEscaped(url.username) && isEscaped(url.password))) return undefined;
  return 'has a % in its user or password that must be written as %25';
}

function isEscaped(text: string): boolean {
  try {
    return decodeURIComponent(text) !== undefined;
  } catch {
    return false;
  }
}

const names = () => PROTOCOLS.map((protocol) => `${protocol}//`).join(', ');

/** Every environment variable of the gateway; defaults are texts, as in the environment. */
export const Environment = z.object({
  GATEWAY_PORT: port.prefault('3001').describe('Port of the HTTP server; 0 picks a free one'),
  GATEWAY_HOST: z.string().prefault('127.0.0.1').describe('Address to listen on; 0.0.0.0 for all'),
  GATEWAY_METRICS_PORT: port
    .optional()
    .describe(
      'Operator port: it serves /metrics in place of the main port, and /health with every node; unset: none',
    ),
  GATEWAY_UPSTREAMS: list
    .pipe(z.array(UpstreamUrl))
    .prefault('')
    .describe(
      'Nodes, separated by commas: grpc://, grpcs://, rpc+http:// or rpc+https://, with ?from=1 on one that keeps every height, and ?rpc=http://… on a gRPC node whose RPC reports new blocks; required',
    ),
  GATEWAY_UPSTREAM_CA: z
    .string()
    .optional()
    .describe('PEM file of certificates to trust for nodes, in addition to those of Node'),
  GATEWAY_HTTP2: z
    .enum(['own', 'node'])
    .prefault('own')
    .describe('HTTP/2 client for gRPC nodes: own uses less CPU, node is that of Node'),
  GATEWAY_DESCRIPTORS: z
    .string()
    .optional()
    .describe("File with the chain's FileDescriptorSet; unset: read from the nodes"),
  GATEWAY_PREFIX: z
    .string()
    .regex(/^[A-Za-z0-9._~-]{1,64}(=[A-Za-z0-9._~-]{1,64})?$/, {
      error: 'must be one segment of a path, such as ixo, or two such as assets=osmosis',
    })
    .prefault('ixo')
    .describe(
      "First path segment of the chain's own routes; for another chain than ixo followed by = and the segment it declares, which is always accepted",
    ),
  GATEWAY_LEGACY: flag
    .prefault('true')
    .describe('Serve the paths of earlier chain versions, with a link to their successor'),
  GATEWAY_COMPAT: z
    .literal('node', { error: 'must be node, or unset' })
    .optional()
    .describe('node makes the gateway behave exactly like a node on port 1317'),
  GATEWAY_AUTH: z
    .enum(['none', 'api-key', 'ucan'])
    .prefault('none')
    .describe('Authentication: none, API keys or UCANs'),
  GATEWAY_API_KEYS: list
    .pipe(z.array(ApiKey))
    .prefault('')
    .describe(
      'SHA-256 of each key in hex, separated by commas, each with optional ;name=, ;limit= (requests per minute) and ;scope= (route templates separated by |, such as /ixo/entity/*)',
    ),
  GATEWAY_DID: did.optional().describe('Audience of UCANs; unset: the DID of a key in DATA_DIR'),
  GATEWAY_UCAN_ISSUERS: list
    .refine((items) => items.every((item) => item === '*' || did.safeParse(item).success), {
      error: 'must be * or DIDs, separated by commas',
    })
    .prefault('*')
    .describe('DIDs that may grant chain/query, separated by commas; * for all'),
  GATEWAY_CORS_ORIGIN: origins
    .prefault('')
    .describe('Allowed CORS origins, separated by commas; * for all; unset: none'),
  GATEWAY_RATE_LIMIT_PER_MINUTE: positive
    .optional()
    .describe('Queries per minute for each key, DID or address; unset: no limit'),
  GATEWAY_TRUST_PROXY: positive
    .optional()
    .describe('Number of trusted proxies in front of the gateway, for X-Forwarded-For'),
  GATEWAY_CACHE_SIZE: size
    .prefault('64mb')
    .describe('Memory for cached replies; 0 disables the cache'),
  GATEWAY_CACHE_BYPASS_SECRET: z
    .string()
    .min(16, { error: 'must have at least 16 characters' })
    .optional()
    .describe('Value of X-Cache-Bypass that bypasses the cache; unset: no bypass'),
  GATEWAY_TIMEOUT_SECONDS: seconds
    .prefault('15')
    .describe('Timeout of a query, including all attempts'),
  GATEWAY_FORWARD_METADATA: metadataNames
    .prefault('')
    .describe(
      'Names of Grpc-Metadata-* headers to forward to nodes, separated by commas; such queries are neither cached nor shared',
    ),
  GATEWAY_MAX_REPLY_SIZE: size.prefault('16mb').describe('Maximum size of a reply from a node'),
  GATEWAY_PAGE_LIMIT: positive.prefault('1000').describe('Maximum pagination.limit'),
  GATEWAY_BATCH_LIMIT: positive.prefault('50').describe('Maximum queries in one POST /batch'),
  GATEWAY_WATCHERS: whole.prefault('1000').describe('Maximum concurrent watches'),
  GATEWAY_WATCHERS_PER_CALLER: positive
    .prefault('20')
    .describe('Maximum concurrent watches for each key, DID or address'),
  GATEWAY_WATCH_STALL_SECONDS: seconds
    .prefault('60')
    .describe('How long a watching client may receive nothing before it is disconnected'),
  GATEWAY_BLOCK_POLL_MS: whole
    .refine((value) => value >= 50, { error: 'must be at least 50' })
    .prefault('1000')
    .describe('Longest interval between polls for new blocks, in milliseconds'),
  GATEWAY_MAX_LAG: whole
    .prefault('3')
    .describe('Blocks a node may be behind the others and still serve the latest state'),
  GATEWAY_REQUEST_TIMEOUT_SECONDS: seconds
    .prefault('15')
    .describe('Maximum time to receive a request'),
  DATA_DIR: z.string().prefault('./data').describe('Folder for the key, if GATEWAY_DID is unset'),
  LOG_LEVEL: z
    .enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'])
    .prefault('info')
    .describe('Minimum log level'),
});
export type Environment = z.infer<typeof Environment>;
