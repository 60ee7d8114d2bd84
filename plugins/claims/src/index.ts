import { type DynamicModule, Module, RequestMethod } from '@nestjs/common';
import { definePlugin, type PluginContext } from '@sibyl/plugin-kit';
import { z } from 'zod';
import { ClaimRunner } from './claim-runner.js';
import { ClaimStore, migrations, RunnerLease } from './claim-store.js';
import { ClaimsController, CronSecret, UserClaims } from './claims-api.js';
import { ClaimsService } from './claims-service.js';
import { unpaidUsageOf } from './unpaid-usage.js';

/** The plugin's variables. */
export const ClaimsConfig = z.object({
  CLAIMS_URL: z
    .url({ protocol: /^https?$/, error: 'must be an http(s) URL' })
    .transform((url) => url.replace(/\/+$/, ''))
    .describe('Service that claims are submitted to'),
  CRON_SECRET: z
    .string()
    .min(8, { error: 'must have at least 8 characters' })
    .describe('What whoever calls POST /claims/process must send as Authorization: Bearer …'),
});
export type ClaimsConfig = z.output<typeof ClaimsConfig>;

@Module({})
class ClaimsModule {}

/** Usage that balances could not pay is claimed from whoever pays for it. */
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
  migrations,
  getAuthExcludedRoutes: () => [{ path: 'claims/process', method: RequestMethod.POST }],
  getNestModules: (context) => [claimsModule(context)],
});

function claimsModule(context: PluginContext<ClaimsConfig>): DynamicModule {
  const { database, config, logger } = context;
  const clock = Date.now;
  const usage = unpaidUsageOf(context.shared);
  const store = new ClaimStore({ database, clock });
  const service = new ClaimsService({ context, url: config.CLAIMS_URL });
  const newLease = () => new RunnerLease({ database, clock });
  const runner = new ClaimRunner({ store, service, usage, newLease, logger });
  context.onClose(() => runner.stop());
  return {
    module: ClaimsModule,
    controllers: [ClaimsController],
    providers: [
      { provide: UserClaims, useValue: new UserClaims(store, usage) },
      { provide: ClaimRunner, useValue: runner },
      { provide: CronSecret, useValue: new CronSecret(config.CRON_SECRET) },
    ],
  };
}
