import type { DelegationInfo, StoppedWork } from '@sibyl/client';
import { type Call, type Command, findAction, UsageError } from '../command.js';
import { type OpenOracle, openOracle } from '../environment.js';
import { plainText, table } from '../terminal.js';

const HOUR_SECONDS = 3600;
const DEFAULT_HOURS = 24;
/** A hundred years. */
const MAX_HOURS = 876_000;

/** Lets an oracle act for you elsewhere. */
export const delegate: Command = {
  name: 'delegate',
  summary: 'Let an oracle act for you elsewhere, or no longer',
  usage: [
    'grant [url] --can <ability> [--with <resource>] [--hours <number>]',
    'status [url]',
    'list [url]',
    'revoke [cid] [url]',
    'revoke --all [url]',
  ],
  details: [
    'A delegation names what the oracle may do ("can"), with what ("with"), and until when. For instance: --can "store/*" --with did:key:z6Mk…',
    '"list" shows all your delegations that the oracle knows. "revoke" ends the granted one and those it replaced; with a CID that one alone; with --all every one.',
  ].join('\n'),
  options: {
    can: {
      type: 'string',
      value: 'ability',
      summary: 'What it may do, such as store/put; * for all',
    },
    with: { type: 'string', value: 'resource', summary: 'The resource; default: your own DID' },
    hours: {
      type: 'string',
      value: 'number',
      summary: `Hours until it expires; default ${DEFAULT_HOURS}`,
    },
    all: { type: 'boolean', summary: 'With revoke: all delegations that the oracle knows' },
  },
  async run(call) {
    const [action, ...rest] = call.args;
    const run = findAction(actions, action);
    if (action === 'grant') checkCapability(call.options);
    const cid = action === 'revoke' ? rest.find((arg) => !isAddress(arg)) : undefined;
    if (cid !== undefined && call.options.all)
      throw new UsageError('Give a CID or --all, not both');
    const oracle = await openOracle(
      rest.find((arg) => arg !== cid),
      call.output,
    );
    return run(oracle, call, cid);
  },
};

/** Throws if an oracle would refuse to read the capability. */
function checkCapability({ can, with: resource }: Call['options']): void {
  if (!can) throw new UsageError('--can is missing');
  if (!isAbility(String(can)))
    throw new UsageError(
      '--can must be an ability in lower case, such as store/put or store/*, or *',
    );
  if (resource !== undefined && !URL.canParse(String(resource)))
    throw new UsageError('--with must be a URI, such as did:key:z6Mk… or mailto:me@example.org');
}

const isAbility = (can: string) =>
  can === '*' || (can.slice(1, -1).includes('/') && can === can.toLowerCase());

const isAddress = (arg: string) => /^https?:/.test(arg);

async function grant({ client, signer }: OpenOracle, { options, output }: Call): Promise<number> {
  const hours = Number(options.hours ?? DEFAULT_HOURS);
  if (!(hours > 0 && hours <= MAX_HOURS))
    throw new UsageError(`--hours must be a number above 0, at most ${MAX_HOURS}`);
  const expiration = Math.floor(Date.now() / 1000 + hours * HOUR_SECONDS);
  const capability = { can: String(options.can), with: String(options.with ?? signer.did) };
  const stored = await client.delegation.grant({ capabilities: [capability], expiration });
  output.result(
    { ...stored, capability },
    `Granted ${capability.can} with ${capability.with} until ${formatTime(expiration)}`,
  );
  return 0;
}

async function status({ client }: OpenOracle, { output }: Call): Promise<number> {
  const now = await client.delegation.status();
  const until = now.expiration === undefined ? '' : ` until ${formatTime(now.expiration)}`;
  output.result(now, now.authorized ? `Granted${until}` : 'Nothing is granted');
  return 0;
}

async function list({ client }: OpenOracle, { output }: Call): Promise<number> {
  const delegations = await client.delegation.list();
  const rows = delegations.map((delegation) => {
    const { cid, capabilities, expiration, isCurrent } = delegation;
    return [
      cid,
      capabilities.map(({ can, with: resource }) => `${can} with ${resource}`).join(', '),
      expiration === undefined ? 'never expires' : `until ${formatTime(expiration)}`,
      describeUse(delegation),
      isCurrent ? 'current' : '',
    ];
  });
  const text = rows.length > 0 ? table(rows) : 'The oracle knows no delegation from you';
  output.result({ delegations }, plainText(text));
  return 0;
}

function describeUse({ lastUsedAt, lastUsedBy }: DelegationInfo): string {
  if (lastUsedAt === undefined) return 'never used';
  const by = lastUsedBy === undefined ? '' : ` by ${lastUsedBy}`;
  return `used ${new Date(lastUsedAt).toLocaleString()}${by}`;
}

async function revoke(
  { client }: OpenOracle,
  { output, options }: Call,
  cid: string | undefined,
): Promise<number> {
  if (options.all) {
    const { revoked, stopped } = await client.delegation.revokeAll();
    const text = `Revoked ${revoked}${describeStopped(stopped)}`;
    output.result({ ok: true, revoked, stopped }, plainText(text));
    return 0;
  }
  const stopped = await client.delegation.revoke(cid);
  output.result({ ok: true, stopped }, plainText(`Revoked${describeStopped(stopped)}`));
  return 0;
}

const describeStopped = (stopped: readonly StoppedWork[]): string =>
  stopped.map(({ kind, name }) => `\nStopped the ${kind} ${name}`).join('');

const actions = { grant, status, list, revoke };

const formatTime = (seconds: number) => new Date(seconds * 1000).toLocaleString();
