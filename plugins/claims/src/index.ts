import { createHash, timingSafeEqual } from 'node:crypto';
import { definePlugin, defineRoute, OracleError, type SetupContext } from '@sibyl/plugin-kit';
import { z } from 'zod';
import { ClaimList, ClaimsProcessed, CREDITS, ListClaims } from './claim.js';
import { ClaimRunner, RunnerLease } from './claim-runner.js';
import { ClaimStore, tables } from './claim-store.js';
import { ClaimsService } from './claims-service.js';

/** The plugin's environment variables. */
export const ClaimsConfig = z.object({
  CLAIMS_URL: z
    .url({ protocol: /^https?$/, error: 'must be an http(s) URL' })
    .transform((url) => url.replace(/\/+$/, ''))
    .describe('Service that claims are submitted to'),
  CRON_SECRET: z
    .string()
    .min(8, { error: 'must have at least 8 characters' })
    .describe('Secret that callers of POST /claims/process send as Authorization: Bearer …'),
});
export type ClaimsConfig = z.output<typeof ClaimsConfig>;

/** Claims unpaid usage from a service. */
export const claims = definePlugin({
  name: 'claims',
  version: '0.1.0',
  manifest: {
    title: 'Claims',
    summary: 'Usage that balances could not pay is claimed from a service.',
    whenToUse: [],
    category: 'billing',
    visibility: 'silent',
  },
  dependsOn: ['credits'],
  configSchema: ClaimsConfig,
  autoDetect: ({ CLAIMS_URL, CRON_SECRET }) => Boolean(CLAIMS_URL && CRON_SECRET),
  autoDetectHint: 'set CLAIMS_URL and CRON_SECRET',
  tables,
  setup: (context) => createServices(context),
  close: ({ runner }) => runner.stop(),
  routes: ({ services: { store, usage, runner, secret } }) => [
    defineRoute({
      method: 'GET',
      path: '/claims',
      summary: "The caller's claims, newest first",
      query: ListClaims,
      reply: ClaimList,
      handler: async ({ caller: { did: owner }, query: { limit } }) => {
        // Usage is a claim as soon as it is unpaid, not only after the next run.
        await store.adopt(await usage.listByOwner(owner));
        return { claims: await store.list({ owner, limit }) };
      },
    }),
    defineRoute({
      method: 'POST',
      path: '/claims/process',
      auth: 'public',
      summary: 'Process the claims that are due; for a scheduler',
      reply: ClaimsProcessed,
      errors: ['missing_authentication'],
      headers: { authorization: 'Bearer and the CRON_SECRET' },
      handler: ({ headers }) => {
        secret.assert(headers.authorization);
        return runner.run();
      },
    }),
  ],
});

function createServices(context: SetupContext<ClaimsConfig>) {
  const { database, config, logger, hosts } = context;
  const clock = database.now;
  const usage = context.shared.require(CREDITS);
  const store = new ClaimStore({ database, clock });
  const service = new ClaimsService({ context, url: config.CLAIMS_URL });
  const newLease = () => new RunnerLease({ database, clock, hosts });
  const runner = new ClaimRunner({ store, service, usage, newLease, logger });
  return { store, usage, runner, secret: new CronSecret(config.CRON_SECRET) };
}

/** Compares secrets in constant time. */
export class CronSecret {
  private readonly digest: Buffer;

  constructor(secret: string) {
    this.digest = hash(`Bearer ${secret}`);
  }

  assert(authorization: string | undefined): void {
    if (timingSafeEqual(hash(authorization ?? ''), this.digest)) return;
    throw new OracleError('missing_authentication', {
      message: 'Provide Authorization: Bearer <CRON_SECRET>',
    });
  }
}

/** Hashes have one length, which timingSafeEqual requires. */
function hash(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
