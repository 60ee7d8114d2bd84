import type { Check } from '../checks/check.js';
import { checks } from '../checks/checks.js';
import type { Command } from '../command.js';

const marks = { ok: '✓', off: '–', fault: '✗' } as const;

/** Looks whether an oracle could run here, and says what to do where not. */
export const doctor: Command = {
  name: 'doctor',
  summary: 'Check configuration, key, store, model, Matrix and chain, and say what to do',
  usage: [''],
  details:
    'Reads the environment and .env in this folder, as "sibyl start" does. The model is asked for one word, which may cost a fraction of a cent. The exit code is 1 if anything is wrong.',
  async run({ output }) {
    const found: (Check & { readonly name: string })[] = [];
    for (const [name, check] of Object.entries(checks)) {
      const result = await output.progress(`Checking the ${name}`, check());
      found.push({ name, ...result });
      if (output.format === 'text') output.write(`${describe(name, result)}\n`);
      // Without a configuration nothing else can be looked at.
      if (name === 'configuration' && result.state === 'fault') break;
    }
    const hasFault = found.some(({ state }) => state === 'fault');
    if (output.format === 'json') output.result({ ok: !hasFault, checks: found }, '');
    return hasFault ? 1 : 0;
  },
};

function describe(name: string, { state, text, remedy }: Check): string {
  const advice = remedy ? `\n    ${remedy}` : '';
  return `${marks[state]} ${name}: ${text.replaceAll('\n', '\n    ')}${advice}`;
}
