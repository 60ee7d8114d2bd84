import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { OracleAppOptions } from '@sibyl/host';
import { type Call, type Command, CommandError, fail } from '../command.js';
import { loadHost, variable } from '../environment.js';
import { table } from '../terminal.js';

const marks = { ok: '✓', off: '–', fault: '✗' } as const;

const options: Command['options'] = {
  plugins: {
    type: 'string',
    value: 'module',
    summary: 'Your own plugins too: the module that exports them as `plugins`',
  },
};

/** Checks whether an oracle can run here, and says how to fix what is wrong. */
export const doctor: Command = {
  name: 'doctor',
  summary:
    'Check configuration, key, store, logins, proxy, model, Matrix, chain and plugins, and say what to do',
  usage: [''],
  details:
    'Reads the environment and .env in this folder, as "sibyl start" does. The model is asked for one word, which may cost a fraction of a cent. The exit code is 1 if anything is wrong.',
  options,
  async run({ options, output }) {
    const own = await loadOwnPlugins(options);
    const found: NamedCheck[] = [];
    const report = (check: NamedCheck) => {
      found.push(check);
      if (output.format === 'text') output.write(`${describe(check)}\n`);
    };
    for (const [name, check] of Object.entries(checks)) {
      report({ name, ...(await output.progress(`Checking the ${name}`, check(own))) });
      // Without a configuration nothing else can be looked at.
      if (found[0]?.state === 'fault') break;
    }
    if (found[0]?.state !== 'fault')
      for (const check of await output.progress('Checking the plugins', checkPlugins(own)))
        report(check);
    const hasFault = found.some(({ state }) => state === 'fault');
    if (output.format === 'json') output.result({ ok: !hasFault, checks: found }, '');
    return hasFault ? 1 : 0;
  },
};

function describe({ name, state, text, remedy }: NamedCheck): string {
  const advice = remedy ? `\n    ${remedy}` : '';
  return `${marks[state]} ${name}: ${text.replaceAll('\n', '\n    ')}${advice}`;
}

/** What the plugins report about the services they depend on. */
async function checkPlugins(own: OwnPlugins): Promise<NamedCheck[]> {
  const { diagnosePlugins } = await loadHost();
  const diagnoses = await diagnosePlugins(own);
  return diagnoses.map(({ ok, ...found }) => ({ ...found, state: ok ? 'ok' : 'fault' }));
}

/** The plugins that the oracle of this folder has beside the bundled ones. */
type OwnPlugins = Pick<OracleAppOptions, 'plugins'>;

async function loadOwnPlugins({ plugins: path }: Call['options']): Promise<OwnPlugins> {
  if (typeof path !== 'string') return {};
  const { plugins } = await import(pathToFileURL(resolve(path)).href).catch((cause) => {
    const { message } = cause as Error;
    throw new CommandError(`Cannot load ${path}, which has your plugins: ${message}`, { cause });
  });
  if (!Array.isArray(plugins))
    fail(`${path} does not export "plugins": add "export const plugins = [yourPlugin]"`);
  return { plugins };
}

const madeAtStart = (path: string) => `made at the first start, in ${path}`;

async function pluginFetch() {
  const { createPluginFetch, loadConfig } = await loadHost();
  return createPluginFetch(loadConfig());
}

/** Every check, in the order they make sense. The host is loaded by those who need it: that takes a second. */
const checks: Readonly<Record<string, (own: OwnPlugins) => Promise<Check>>> = {
  configuration: async (own) => {
    const { ConfigError, describePlugins, loadConfig } = await loadHost();
    try {
      // Finds faults of plugins' variables too.
      describePlugins(own);
      const { dataDir, oracle } = loadConfig();
      return { state: 'ok', text: `${oracle.name}, data in ${dataDir}` };
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      const remedy =
        'Set these variables in the environment or in .env; docs/configuration.md lists them all';
      return { state: 'fault', text: error.message, remedy };
    }
  },
  key: async () => {
    const { checkKey, loadConfig } = await loadHost();
    const found = await checkKey(loadConfig());
    if ('did' in found) return { state: 'ok', text: found.did };
    if ('makes' in found) return { state: 'ok', text: madeAtStart(found.makes) };
    const remedy = 'Check ORACLE_MNEMONIC or ORACLE_PRIVATE_KEY, or the key file in DATA_DIR';
    return { state: 'fault', text: found.fault, remedy };
  },
  store: async () => {
    const { checkStore, loadConfig } = await loadHost();
    const config = loadConfig();
    const place = config.databaseUrl ? 'PostgreSQL' : `SQLite in ${config.dataDir}`;
    const found = await checkStore(config);
    if ('makes' in found) return { state: 'ok', text: `SQLite, ${madeAtStart(found.makes)}` };
    if ('isBehind' in found) {
      const more = found.isBehind ? '; the next start updates its tables' : '';
      return { state: 'ok', text: `${place}${more}` };
    }
    const remedy = config.databaseUrl
      ? 'Check DATABASE_URL, and that the database is up and lets this machine in'
      : 'Check that DATA_DIR can be written and no other program holds it';
    return { state: 'fault', text: `${place}: ${found.fault}`, remedy };
  },
  logins: async () => {
    const { loadConfig } = await loadHost();
    const { allowDelegationLogin, loginMaxDays } = loadConfig().auth;
    if (!allowDelegationLogin) return { state: 'ok', text: 'with invocations only' };
    if (loginMaxDays !== undefined)
      return { state: 'ok', text: `also with delegations of at most ${loginMaxDays} days` };
    const text = 'also with delegations that never expire, which other services may know';
    return { state: 'off', text: `${text}; set DELEGATION_LOGIN_MAX_DAYS=30` };
  },
  proxy: async () => {
    const { loadConfig } = await loadHost();
    const { publicUrl, port, trustProxy } = loadConfig();
    const { protocol, port: publicPort } = new URL(publicUrl);
    const isBehindProxy = protocol === 'https:' || Number(publicPort || 80) !== port;
    if (!isBehindProxy) return { state: 'ok', text: 'none in front of this oracle' };
    if (trustProxy !== undefined) return { state: 'ok', text: 'its X-Forwarded-For is trusted' };
    const text = `PUBLIC_URL is ${publicUrl}, so a proxy is in front, whose users all count as one address`;
    return {
      state: 'off',
      text: `${text}; set TRUST_PROXY to its address, or to loopback if it is on this machine`,
    };
  },
  model: async () => {
    const { checkModel, loadConfig } = await loadHost();
    const config = loadConfig();
    const { main } = config.models;
    if (main === 'offline') {
      const text = 'the built-in offline model, which only knows a few rules';
      return { state: 'off', text: `${text}; set MODEL and its key for a real one` };
    }
    const fault = await checkModel(config);
    if (!fault) return { state: 'ok', text: `${main} answers` };
    const remedy =
      "Check MODEL, the provider's key variable, and that this machine reaches the provider";
    return { state: 'fault', text: `${main}: ${fault}`, remedy };
  },
  Matrix: async () => {
    const url = variable('MATRIX_BASE_URL');
    const token = variable('MATRIX_ACCESS_TOKEN');
    if (!url) return { state: 'off', text: 'not configured (MATRIX_BASE_URL)' };
    const path = token ? '/_matrix/client/v3/account/whoami' : '/_matrix/client/versions';
    return checkAddress({
      url: `${url.replace(/\/+$/, '')}${path}`,
      headers: token ? { authorization: `Bearer ${token}` } : {},
      remedy: 'Check MATRIX_BASE_URL and MATRIX_ACCESS_TOKEN',
      fetch: await pluginFetch(),
    });
  },
  chain: async () => {
    const url = variable('CHAIN_REST_URL');
    if (!url) {
      const blocksync = variable('BLOCKSYNC_GRAPHQL_URL');
      if (!blocksync)
        return { state: 'off', text: 'not configured (CHAIN_REST_URL); did:ixo callers get 401' };
      return checkAddress({
        url: `${blocksync}?query=%7B__typename%7D`,
        headers: { accept: 'application/json' },
        remedy: 'Check BLOCKSYNC_GRAPHQL_URL',
        fetch,
      });
    }
    const path = '/cosmos/base/tendermint/v1beta1/node_info';
    return checkAddress({
      url: `${url.replace(/\/+$/, '')}${path}`,
      headers: {},
      remedy: 'Check CHAIN_REST_URL',
      fetch,
    });
  },
  gateway: async () => {
    const url = variable('GATEWAY_URL');
    if (!url)
      return {
        state: 'off',
        text: 'not configured (GATEWAY_URL); one started beside the oracle needs none',
      };
    return checkAddress({
      url: `${url.replace(/\/+$/, '')}/health`,
      headers: {},
      remedy: 'Start it with "sibyl gateway", or check GATEWAY_URL',
      fetch: await pluginFetch(),
    });
  },
};

const TIMEOUT_MS = 10_000;

/** Errors of addresses that an oracle never connects to. */
const REFUSALS: ReadonlySet<unknown> = new Set(['address_refused', 'scheme_refused']);

interface Address {
  readonly url: string;
  readonly headers: Record<string, string>;
  readonly remedy: string;
  /** What the oracle itself would ask with. */
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>;
}

/** Whether something answers well at an address that the operator configured. */
async function checkAddress({ url, headers, remedy, fetch }: Address): Promise<Check> {
  try {
    const response = await fetch(url, { headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
    await response.body?.cancel();
    const { host } = new URL(url);
    if (response.ok) return { state: 'ok', text: `${host} answers` };
    return { state: 'fault', text: `${host} answers ${response.status}`, remedy };
  } catch (error) {
    const { cause, message, code } = error as Error & { readonly code?: unknown };
    if (REFUSALS.has(code)) return { state: 'fault', text: message, remedy: opening(url) };
    const reason = cause instanceof Error ? cause.message : message;
    return { state: 'fault', text: `no answer (${reason})`, remedy };
  }
}

function opening(url: string): string {
  const allowed = [variable('OUTGOING_ALLOW'), new URL(url).host].filter(Boolean).join(',');
  return `Set OUTGOING_ALLOW=${allowed} in the environment or in .env`;
}

/** The result of one check. */
interface Check {
  readonly state: 'ok' | 'off' | 'fault';
  readonly text: string;
  /** What to do about a fault. */
  readonly remedy?: string;
}

interface NamedCheck extends Check {
  readonly name: string;
}

/** Which plugins would load here, and why others would not. */
export const plugins: Command = {
  name: 'plugins',
  summary: 'List the plugins: which load with this configuration, and why others do not',
  usage: [''],
  details: 'Reads the environment and .env in this folder, as "sibyl start" does.',
  options,
  async run({ options, output }) {
    const own = await loadOwnPlugins(options);
    const { ConfigError, describePlugins } = await output.progress('Loading', loadHost());
    try {
      const status = describePlugins(own);
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
