import type { OraclePlugin } from '@sibyl/plugin-kit';
import * as protocol from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { testPlugin } from '../../test/support/plugin.js';
import { type SelectRequest, selectPlugins } from './select-plugins.js';

const select = (plugins: readonly OraclePlugin[], more: Partial<SelectRequest> = {}) =>
  selectPlugins({ plugins, bundled: 0, features: {}, manifestOverrides: {}, env: {}, ...more });

const plugin = testPlugin;
const selectNames = (plugins: readonly OraclePlugin[], more?: Partial<SelectRequest>) =>
  select(plugins, more).selected.map(({ name }) => name);
const listIssues = (plugins: readonly OraclePlugin[], more?: Partial<SelectRequest>) =>
  select(plugins, more).issues.map(
    ({ subject, problem, remedy }) => `${subject}: ${problem} → ${remedy}`,
  );

describe('selectPlugins', () => {
  it.each([
    ['dependsOn', 'b', 'is not an array of names'],
    ['configSchema', { A: z.string() }, 'is not a z.object()'],
    ['tables', [{ name: 'notes_pages' }], 'is not a list of tables that defineTable returns'],
    ['migrations', [() => undefined], 'is not an object of functions'],
    ['migrations', { '0001': 'create table' }, 'is not an object of functions'],
    ['close', 1, 'is not a function'],
    ['getTools', [], 'is not a function'],
  ])('reports the member %s: %j', (member, value, problem) => {
    const wrong = plugin('a', { [member]: value } as Partial<OraclePlugin>);
    expect(listIssues([wrong])).toEqual([`plugin a: its ${member} ${problem} → Correct it`]);
  });

  it('selects every plugin that is not switched off, in the given order', () => {
    expect(selectNames([plugin('b', {}), plugin('a', {})])).toEqual(['b', 'a']);
    expect(selectNames([plugin('b', {}), plugin('a', {})], { features: { b: false } })).toEqual([
      'a',
    ]);
  });

  it('calls autoDetect of the plugin with its own variables only', () => {
    const seen: object[] = [];
    const slack = plugin('slack', {
      configSchema: z.object({ SLACK_TOKEN: z.string().optional() }),
      autoDetect: (env) => {
        seen.push(env);
        return env.SLACK_TOKEN !== undefined;
      },
      autoDetectHint: 'set SLACK_TOKEN',
    });
    const { selected, off } = select([slack], { env: { ORACLE_MNEMONIC: 'secret' } });
    expect([selected, off.get('slack')]).toEqual([[], 'set SLACK_TOKEN']);
    expect(selectNames([slack], { env: { SLACK_TOKEN: 'x', PORT: '1' } })).toEqual(['slack']);
    expect(selectNames([slack], { features: { slack: true } })).toEqual(['slack']);
    expect(seen).toEqual([{}, { SLACK_TOKEN: 'x' }]);
  });

  it('orders plugins by dependsOn and softDependsOn', () => {
    const a = plugin('a', { dependsOn: ['c'], softDependsOn: ['b', 'nowhere'] });
    const plugins = [a, plugin('b', {}), plugin('c', { softDependsOn: ['b'] })];
    expect(selectNames(plugins)).toEqual(['b', 'c', 'a']);
    expect(selectNames(plugins, { features: { b: false } })).toEqual(['c', 'a']);
  });

  it('switches a plugin off with the plugins it depends on', () => {
    const plugins = [
      plugin('a', { dependsOn: ['b'] }),
      plugin('b', { dependsOn: ['c'] }),
      plugin('c', {}),
    ];
    const { selected, off, issues } = select(plugins, { features: { c: false } });
    expect([selected, issues]).toEqual([[], []]);
    expect(Object.fromEntries(off)).toEqual({
      c: 'switched off',
      b: 'needs c, which is not loaded',
      a: 'needs b, which is not loaded',
    });
  });

  it('returns the parsed variables of a plugin and its manifest with all defaults', () => {
    const [one] = select(
      [plugin('a', { configSchema: z.object({ A_SIZE: z.coerce.number().default(7) }) })],
      { env: { A_SIZE: '9', B: 'x' }, manifestOverrides: { a: { title: 'Other' } } },
    ).selected;
    expect(one?.config).toEqual({ A_SIZE: 9 });
    expect(Object.isFrozen(one?.config)).toBe(true);
    expect(one?.manifest).toMatchObject({ title: 'Other', stability: 'stable' });
  });
});

describe('selectPlugins reports the plugin, the cause and the remedy of', () => {
  it.each<[string, OraclePlugin[], Partial<SelectRequest>, RegExp]>([
    [
      'a missing dependency',
      [plugin('a', { dependsOn: ['ghost'] })],
      {},
      /^plugin a: it needs the plugin ghost, which this host does not have → Add ghost .* FEATURES=a=false$/,
    ],
    [
      'a dependency that is off while the plugin is wanted',
      [plugin('a', { dependsOn: ['b'] }), plugin('b', {})],
      { features: { a: true, b: false } },
      /^plugin a: it is switched on, but needs the plugin b, which is not loaded: switched off → Let b load too/,
    ],
    [
      'a cycle',
      [
        plugin('a', { dependsOn: ['b'] }),
        plugin('b', { softDependsOn: ['c'] }),
        plugin('c', { dependsOn: ['a'] }),
      ],
      {},
      /^plugin a: it depends on itself: a → b → c → a → Take one/,
    ],
    ['a duplicate', [plugin('a', {}), plugin('a', {})], {}, /^plugin a: there are two .* → Rename/],
    ['a reserved name', [plugin('ixo', {})], {}, /^plugin ixo: its name is reserved → .*key, ixo/],
    ['the name of a table of ours', [plugin('room', {})], {}, /^plugin room: its name is reserved/],
    ['a bad name', [plugin('My_Plugin', {})], {}, /^plugin My_Plugin: invalid plugin name/],
    [
      'no name',
      [plugin('a', {}), {} as OraclePlugin],
      { bundled: 1 },
      /^plugin number 1: it has no name → Give it one/,
    ],
    [
      'no name, by its title',
      [{ ...plugin('a', {}), name: undefined as unknown as string }],
      {},
      /^plugin a: it has no name/,
    ],
    ['nothing', [undefined as unknown as OraclePlugin], {}, /^plugin number 1: it is undefined/],
    [
      'a function',
      [function weather() {} as unknown as OraclePlugin],
      {},
      /^plugin weather: it is a function → Call it/,
    ],
    [
      'a class',
      [class Weather {} as unknown as OraclePlugin],
      {},
      /^plugin Weather: it is a class → Pass an instance/,
    ],
    [
      'a promise',
      [Promise.resolve() as unknown as OraclePlugin],
      {},
      /^plugin number 1: it is a promise → Await it/,
    ],
    [
      'a module',
      [protocol as unknown as OraclePlugin],
      {},
      /^plugin number 1: it is a module, with the exports .*OracleError.* → Pass the export/,
    ],
    [
      'a misspelled hook',
      [plugin('a', { getTool: () => [] } as Partial<OraclePlugin>)],
      {},
      /^plugin a: unknown member getTool: a plugin has name, .*getTools, .* → Correct it, or switch/,
    ],
    ['no version', [plugin('a', { version: '' })], {}, /^plugin a: it has no version/],
    [
      'a bad manifest',
      [plugin('a', { manifest: { title: '', summary: 's', whenToUse: [], category: 'c' } })],
      {},
      /^plugin a: its manifest is invalid: title: .* → Correct the manifest/,
    ],
    [
      'a bad override',
      [plugin('a', {})],
      { manifestOverrides: { a: { visibility: 'loud' as 'always' } } },
      /^plugin a: its manifest is invalid: visibility/,
    ],
    [
      'an unknown feature',
      [plugin('a', {})],
      { features: { b: true } },
      /^plugin b: features or FEATURES names it, but there is no such plugin → .* there are a$/,
    ],
    [
      'an unknown override',
      [plugin('a', {})],
      { manifestOverrides: { b: {} } },
      /^plugin b: manifestOverrides names it/,
    ],
    [
      'a missing variable',
      [plugin('a', { configSchema: z.object({ A_KEY: z.string().describe('Key of A') }) })],
      {},
      /^A_KEY \(plugin a\): is not set → Key of A\. Correct it, or switch it off with FEATURES=a=false$/,
    ],
    [
      'a wrong variable',
      [plugin('a', { configSchema: z.object({ A_SIZE: z.coerce.number() }) })],
      { env: { A_SIZE: 'wide' } },
      /^A_SIZE \(plugin a\): Invalid input/,
    ],
    [
      "a variable of the host's",
      [plugin('a', { configSchema: z.object({ ORACLE_MNEMONIC: z.string().optional() }) })],
      {},
      /^plugin a: it reads ORACLE_MNEMONIC, which belongs to the host → /,
    ],
    [
      'a variable of another plugin',
      [
        plugin('a', { configSchema: z.object({ KEY: z.string().optional() }) }),
        plugin('b', { configSchema: z.object({ KEY: z.string().optional() }) }),
      ],
      {},
      /^plugin b: it reads KEY, which belongs to the plugin a/,
    ],
    [
      'autoDetect that throws',
      [
        plugin('a', {
          autoDetect: () => {
            throw new Error('no idea');
          },
        }),
      ],
      {},
      /^plugin a: autoDetect failed: no idea → Fix it, or switch it off/,
    ],
  ])('%s', (_, plugins, more, text) => {
    expect(listIssues(plugins, more)).toEqual([expect.stringMatching(text)]);
  });

  it('all issues together', () => {
    const configSchema = z.object({ A_KEY: z.string(), A_SIZE: z.coerce.number() });
    const plugins = [plugin('a', { configSchema }), plugin('b', { dependsOn: ['ghost'] })];
    expect(listIssues(plugins, { features: { unknown: true } })).toHaveLength(4);
  });
});

it('selectPlugins checks neither the manifest nor the variables of a plugin that does not load', () => {
  const broken = plugin('a', {
    manifest: {} as OraclePlugin['manifest'],
    configSchema: z.object({ A_KEY: z.string() }),
  });
  expect(listIssues([broken], { features: { a: false } })).toEqual([]);
});

it('selectPlugins accepts an instance of a class that has other members', () => {
  class Weather {
    readonly name = 'weather';
    readonly version = '1.0.0';
    readonly manifest = testPlugin('weather', {}).manifest;
    readonly cache = new Map();
    forget() {}
  }
  expect(listIssues([new Weather()])).toEqual([]);
});
