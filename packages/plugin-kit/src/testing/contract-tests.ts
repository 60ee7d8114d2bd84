import type { OraclePlugin } from '../plugin.js';
import { hookTests } from './contract/hook-tests.js';
import { identityTests } from './contract/identity-tests.js';
import { routeTests } from './contract/route-tests.js';
import { toolTests } from './contract/tool-tests.js';
import type { ContractOptions, ContractTest, Trial } from './contract/trial.js';
import { createTestRuntime } from './test-runtime.js';

/** What the contract asks of a plugin, as tests for any runner: `it.each(contractTests(plugin))('$name', ({ run }) => run())`. */
export function contractTests(plugin: OraclePlugin, options: ContractOptions = {}): ContractTest[] {
  const { dependencies = [], ...rest } = options;
  const use: Trial['use'] = async (check) => {
    const runtime = await createTestRuntime({ ...rest, plugins: [...dependencies, plugin] });
    try {
      await check(runtime);
    } finally {
      await runtime.close();
    }
  };
  const trial: Trial = { plugin, options, use };
  return [identityTests, hookTests, toolTests, routeTests].flatMap((tests) => tests(trial));
}
