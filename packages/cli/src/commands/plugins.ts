import { type Command, CommandError } from '../command.js';
import { loadHost } from '../environment.js';
import { table } from '../terminal.js';

/** Which plugins would load here, and why others would not. */
export const plugins: Command = {
  name: 'plugins',
  summary: 'List the bundled plugins: which load with this configuration, and why others do not',
  usage: [''],
  details: 'Reads the environment and .env in this folder, as "sibyl start" does.',
  async run({ output }) {
    const { ConfigError, describePlugins } = await output.progress('Loading', loadHost());
    try {
      const status = describePlugins();
      const rows = status.map(({ name, version, isLoaded, reason = '' }) => [
        name,
        version,
        isLoaded ? 'loaded' : 'not loaded',
        reason,
      ]);
      output.result(status, table(rows));
      return 0;
    } catch (error) {
      if (error instanceof ConfigError) throw new CommandError(error.message);
      throw error;
    }
  },
};
