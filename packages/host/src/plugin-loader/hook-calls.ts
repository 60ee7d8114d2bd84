import type { SetUpHook } from '@sibyl/plugin-kit/rules';
import { inTime } from '../agent/calls/in-time.js';
import type { BootFault } from '../config/boot-error.js';
import { pluginFault, reasonOf, switchOff } from './plugin-faults.js';

/** How long a hook may take while the host starts. */
const LIMIT = {
  ms: 30_000,
  fault: 'it took longer than 30 s',
  signal: new AbortController().signal,
};

/** Calls the hooks of one plugin while the host starts, and keeps what goes wrong. */
export class HookCalls {
  readonly faults: BootFault[] = [];

  constructor(private readonly plugin: string) {}

  async call<T>({ hook, run, check, otherwise }: SetUpHook<T>): Promise<T> {
    try {
      const value = await inTime(LIMIT, async () => run());
      if (value === undefined) return otherwise;
      const fault = check(value);
      if (!fault) return value;
      this.fail(`${hook} returned something else than it should: ${fault}`);
    } catch (error) {
      this.fail(`${hook} failed: ${reasonOf(error)}`);
    }
    return otherwise;
  }

  fail(problem: string, remedy = `Mend it, or ${switchOff(this.plugin)}`): void {
    this.faults.push(pluginFault(this.plugin, problem, remedy));
  }
}
