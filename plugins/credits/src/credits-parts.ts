import type { PluginContext } from '@sibyl/plugin-kit';
import type { CreditsConfig } from './config.js';
import { keepReservations } from './keep-reservations.js';
import { Ledger } from './ledger/ledger.js';
import { Reservations } from './ledger/reservations.js';
import { UnpaidUsage } from './ledger/unpaid-usage.js';
import { type CreditLines, noLines } from './subscription/credit-lines.js';
import { SubscriptionService } from './subscription/subscription-service.js';
import { CreditGate } from './turns/credit-gate.js';
import { HoldsAtWork } from './turns/holds-at-work.js';

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
