import { type Call, type Command, UsageError } from '../command.js';
import { type OpenOracle, openOracle } from '../oracle/open-oracle.js';

const HOUR_SECONDS = 3600;
const DEFAULT_HOURS = 24;

/** Lets an oracle act for you elsewhere. */
export const delegate: Command = {
  name: 'delegate',
  summary: 'Let an oracle act for you elsewhere, or no longer',
  usage: [
    'grant [url] --can <ability> [--with <resource>] [--hours <number>]',
    'status [url]',
    'revoke [url]',
  ],
  details:
    'A delegation names what the oracle may do ("can"), with what ("with"), and until when. For instance: --can "store/*" --with did:key:z6Mk…',
  options: {
    can: {
      type: 'string',
      value: 'ability',
      summary: 'What it may do, such as store/put; * for all',
    },
    with: { type: 'string', value: 'resource', summary: 'With what; your own DID unless told' },
    hours: {
      type: 'string',
      value: 'number',
      summary: `For how long; ${DEFAULT_HOURS} unless told`,
    },
  },
  async run(call) {
    const [action, url] = call.args;
    if (action !== 'grant' && action !== 'status' && action !== 'revoke') {
      throw new UsageError('Say what to do: grant, status or revoke');
    }
    if (action === 'grant' && !call.options.can) throw new UsageError('--can is missing');
    const oracle = await openOracle(url, call.output);
    return { grant, status, revoke }[action](oracle, call);
  },
};

async function grant({ client, signer }: OpenOracle, { options, output }: Call): Promise<number> {
  const hours = Number(options.hours ?? DEFAULT_HOURS);
  if (!(hours > 0)) throw new UsageError('--hours must be a number above 0');
  const expiration = Math.floor(Date.now() / 1000 + hours * HOUR_SECONDS);
  const capability = { can: String(options.can), with: String(options.with ?? signer.did) };
  const stored = await client.delegation.grant({ capabilities: [capability], expiration });
  output.result(
    { ...stored, capability },
    `Granted ${capability.can} with ${capability.with} until ${timeOf(expiration)}`,
  );
  return 0;
}

async function status({ client }: OpenOracle, { output }: Call): Promise<number> {
  const now = await client.delegation.status();
  const until = now.expiration === undefined ? '' : ` until ${timeOf(now.expiration)}`;
  output.result(now, now.authorized ? `Granted${until}` : 'Nothing is granted');
  return 0;
}

async function revoke({ client }: OpenOracle, { output }: Call): Promise<number> {
  await client.delegation.revoke();
  output.result({ ok: true }, 'Revoked');
  return 0;
}

const timeOf = (seconds: number) => new Date(seconds * 1000).toLocaleString();
