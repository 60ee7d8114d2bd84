import type { OraclePlugin } from '../../plugin.js';
import type { TestRuntimeOptions } from '../test-options.js';
import type { TestRuntime } from '../test-runtime.js';

/** One thing the contract asks of every plugin. */
export interface ContractTest {
  readonly name: string;
  /** Rejects if the plugin does not keep to it. */
  readonly run: () => Promise<void>;
}

export interface ContractOptions extends Omit<TestRuntimeOptions, 'plugins'> {
  /** The plugins it depends on. */
  readonly dependencies?: readonly OraclePlugin[];
}

/** A plugin on trial. */
export interface Trial {
  readonly plugin: OraclePlugin;
  readonly options: ContractOptions;
  /** Lets a check use the plugin as it is set up, and closes it afterwards. */
  use(check: (runtime: TestRuntime) => Promise<void>): Promise<void>;
}
