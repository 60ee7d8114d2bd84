import { definePlugin, defineRoute, repeat, type SetupContext, sharedKey } from '@sibyl/plugin-kit';
import { ActiveHolds, CreditGate, creditMiddleware } from './credit-gate.js';
import { CreditStatement, Ledger, ReadStatement } from './ledger.js';
import { CreditsConfig } from './prices.js';
import { Reservations } from './reservations.js';
import { type CreditLines, noCreditLines, SubscriptionService } from './subscription.js';
import { tables } from './tables.js';
import { UnpaidUsage } from './unpaid-usage.js';

export { type CreditGrant, type GrantOutcome, grantCredits } from './ledger.js';

/** The usage that balances could not pay, for the plugin that collects it. */
export const CREDITS = sharedKey<UnpaidUsage>('credits');

const RENEW_MS = 15_000;

/** Each user pays for turns from a balance. */
export const credits = definePlugin({
  name: 'credits',
  version: '0.1.0',
  manifest: {
    title: 'Credits',
    summary: 'Each user pays for turns from a balance.',
    whenToUse: [],
    category: 'billing',
    visibility: 'silent',
  },
  configSchema: CreditsConfig,
  autoDetect: ({ CREDITS_ENABLED }) => CREDITS_ENABLED === 'true',
  autoDetectHint: 'set CREDITS_ENABLED=true',
  tables,
  setup: (context) => createServices(context),
  close: ({ renewal }) => renewal.stop(),
  getMessageGate: ({ services }) => services.gate,
  getMiddlewares: ({ services }) => [creditMiddleware(services.holds)],
  getSharedState: ({ services }) => CREDITS.share(services.unpaid),
  routes: ({ services: { ledger } }) => [
    defineRoute({
      method: 'GET',
      path: '/credits',
      summary: "The caller's balance and latest entries",
      query: ReadStatement,
      reply: CreditStatement,
      handler: ({ caller, query: { limit } }) => ledger.statement({ owner: caller.did, limit }),
    }),
  ],
});

function createServices(context: SetupContext<CreditsConfig>) {
  const { database, config, logger, hosts } = context;
  const clock = database.now;
  const lines = createCreditLines(context);
  const initialGrant = config.CREDITS_INITIAL_GRANT;
  const reservations = new Reservations({ database, lines, initialGrant, clock, hosts });
  const holds = new ActiveHolds();
  /** Keeps the reservations of this process alive, and settles those of processes that died. */
  const renew = async () => {
    await reservations.renew();
    await holds.settleEnded();
    const settled = await reservations.settleAbandoned();
    if (settled > 0) logger.info({ settled }, 'settled interrupted turns');
  };
  return {
    ledger: new Ledger({ database, initialGrant, clock }),
    holds,
    unpaid: new UnpaidUsage({ database, clock, onPaid: (owner) => lines.forget(owner) }),
    gate: new CreditGate({
      reservations,
      holds,
      prices: config.CREDITS_PRICES,
      turnMinimum: config.CREDITS_TURN_MINIMUM,
      answerTokens: config.CREDITS_ANSWER_TOKENS,
    }),
    renewal: repeat(renew, { everyMs: RENEW_MS, logger }),
  };
}

function createCreditLines(context: SetupContext<CreditsConfig>): CreditLines {
  const { CREDITS_SERVICE_URL: url, ...config } = context.config;
  if (url === undefined) return noCreditLines;
  return new SubscriptionService({
    context,
    url,
    failure: config.CREDITS_SERVICE_FAILURE,
    cacheMs: config.CREDITS_SERVICE_CACHE_SECONDS * 1000,
    clock: () => performance.now(),
  });
}
