import { Controller, type DynamicModule, Get, Inject, Module, Query } from '@nestjs/common';
import {
  type Caller,
  CurrentCaller,
  Describe,
  definePlugin,
  type Logger,
  type PluginContext,
  repeat,
} from '@sibyl/plugin-kit';
import { CreditsConfig } from './config.js';
import { CreditGate, HoldsAtWork } from './credit-gate.js';
import { paidCalls } from './credit-middleware.js';
import { CreditStatement, Ledger, ReadStatement } from './ledger.js';
import { Reservations } from './reservations.js';
import { type CreditLines, noLines, SubscriptionService } from './subscription.js';
import { migrations } from './tables.js';
import { UnpaidUsage } from './unpaid-usage.js';

export { type CreditGrant, type GrantOutcome, grantCredits } from './ledger.js';

@Module({})
class CreditsModule {}

/** Turns are paid for out of a balance per user. */
export const credits = definePlugin({
  name: 'credits',
  version: '0.1.0',
  manifest: {
    title: 'Credits',
    summary: 'Turns are paid for out of a balance per user.',
    whenToUse: [],
    category: 'billing',
    visibility: 'silent',
  },
  configSchema: CreditsConfig,
  autoDetect: ({ CREDITS_ENABLED }) => CREDITS_ENABLED === 'true',
  autoDetectHint: 'set CREDITS_ENABLED=true',
  migrations,
  getMessageGate: (context) => creditsPartsOf(context).gate,
  getMiddlewares: (context) => [paidCalls(creditsPartsOf(context).holds)],
  getSharedState: (context) => ({ credits: creditsPartsOf(context).unpaid }),
  getNestModules: (context): DynamicModule[] => [
    {
      module: CreditsModule,
      controllers: [CreditsController],
      providers: [{ provide: Ledger, useValue: creditsPartsOf(context).ledger }],
    },
  ],
});

type CreditsContext = PluginContext<CreditsConfig>;

/** What the plugin is made of in one host. */
interface CreditsParts {
  readonly ledger: Ledger;
  readonly gate: CreditGate;
  readonly holds: HoldsAtWork;
  readonly unpaid: UnpaidUsage;
}

const built = new WeakMap<CreditsContext, CreditsParts>();

/** The parts of the host with this context; hooks that ask later get the same. */
export function creditsPartsOf(context: CreditsContext): CreditsParts {
  const parts = built.get(context) ?? build(context);
  built.set(context, parts);
  return parts;
}

function build(context: CreditsContext): CreditsParts {
  const { database, config } = context;
  const clock = Date.now;
  const lines = linesOf(context);
  const initialGrant = config.CREDITS_INITIAL_GRANT;
  const reservations = new Reservations({ database, lines, initialGrant, clock });
  const holds = new HoldsAtWork();
  keepReservations({ reservations, holds }, context);
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
  };
}

function linesOf(context: CreditsContext): CreditLines {
  const { CREDITS_SERVICE_URL: url, ...config } = context.config;
  if (url === undefined) return noLines;
  return new SubscriptionService({
    context,
    url,
    failure: config.CREDITS_SERVICE_FAILURE,
    cacheMs: config.CREDITS_SERVICE_CACHE_SECONDS * 1000,
    clock: () => performance.now(),
  });
}

const PERIOD_MS = 15_000;

interface Kept {
  readonly reservations: Reservations;
  readonly holds: HoldsAtWork;
}

/** Keeps this process's reservations alive, and settles those whose process is gone, now and from time to time. */
export function keepReservations(
  kept: Kept,
  { logger, onClose }: Pick<PluginContext, 'logger' | 'onClose'>,
): void {
  repeat(() => keep(kept, logger), { everyMs: PERIOD_MS, logger, onClose });
}

async function keep({ reservations, holds }: Kept, logger: Logger): Promise<void> {
  await reservations.renew();
  await holds.settleOver();
  const settled = await reservations.settleAbandoned();
  if (settled > 0) logger.info({ settled }, 'settled turns that were cut off');
}

@Controller('credits')
export class CreditsController {
  constructor(@Inject(Ledger) private readonly ledger: Ledger) {}

  @Get()
  @Describe({ summary: "The caller's balance and last entries", reply: CreditStatement })
  read(
    @CurrentCaller() { did }: Caller,
    @Query({ schema: ReadStatement }) { limit }: ReadStatement,
  ): Promise<CreditStatement> {
    return this.ledger.statement({ owner: did, limit });
  }
}
