import { type DynamicModule, Module } from '@nestjs/common';
import { definePlugin } from '@sibyl/plugin-kit';
import { CreditsConfig } from './config.js';
import { CreditsController } from './credits.controller.js';
import { creditsPartsOf } from './credits-parts.js';
import { Ledger } from './ledger/ledger.js';
import { migrations } from './ledger/migrations.js';
import { paidCalls } from './turns/paid-calls.js';

export { type CreditGrant, type GrantOutcome, grantCredits } from './ledger/grant-credits.js';

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
