import { type DynamicModule, Module, RequestMethod } from '@nestjs/common';
import { definePlugin, type PluginContext } from '@sibyl/plugin-kit';
import { ClaimRunner } from './claim-runner.js';
import { ClaimsController } from './claims.controller.js';
import { ClaimsConfig } from './config.js';
import { CronSecret } from './cron-secret.js';
import { ClaimsService } from './service/claims-service.js';
import { ClaimStore } from './store/claim-store.js';
import { RunnerLease } from './store/runner-lease.js';
import { migrations } from './store/tables.js';
import { unpaidUsageOf } from './unpaid-usage.js';
import { UserClaims } from './user-claims.js';

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
