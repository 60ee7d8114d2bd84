// Renders the Helm chart with helm itself, and runs a host with the environment and the probes of the result.
// Exit codes: 0 passed, 1 failed, 77 skipped with the reason on the last line.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { buildIfChanged, MAIN } from './build.ts';
import { getVenv, installGo, SKIPPED, startService } from './third-party.ts';

const CHART = 'deploy/helm/sibyl';
const HELM = { name: 'helm', version: '3.19.0', module: 'helm.sh/helm/v3/cmd/helm' };

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
}

interface Container {
  readonly command: readonly string[];
  readonly env: readonly { readonly name: string; readonly value: string }[];
  readonly envFrom: readonly { readonly secretRef: { readonly name: string } }[];
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
  readonly startupProbe: Probe;
}

interface Resource {
  readonly kind: string;
  readonly spec: {
    readonly replicas: number;
    readonly selector: { readonly matchLabels: object };
    readonly template: {
      readonly metadata: { readonly labels: object };
      readonly spec: { readonly containers: readonly [Container] };
    };
  };
}

async function main(): Promise<number> {
  const reason = installGo(HELM);
  if (reason) {
    console.log(`skipped: ${reason}`);
    return SKIPPED;
  }
  if ((await buildIfChanged()) !== 0) return 1;
  assert.equal(helm('lint', CHART, '--set', 'existingSecret=sibyl').status, 0);
  const without = helm('template', 'test', CHART);
  assert.notEqual(without.status, 0);
  assert.match(without.stderr, /existingSecret is required/);
  const settings = 'existingSecret=sibyl,ingress.enabled=true,env.ORACLE_NAME=Pythia';
  const resources = render(settings);
  const kinds = resources.map(({ kind }) => kind).sort();
  assert.deepEqual(kinds, ['Deployment', 'Ingress', 'PodDisruptionBudget', 'Service']);
  const deployment = resources.find(({ kind }) => kind === 'Deployment');
  assert.ok(deployment);
  await runContainer(deployment);
  console.log('The chart renders, and a host runs with its environment and answers its probes');
  return 0;
}

function helm(...args: string[]) {
  const program = join(resolve(getVenv(HELM)), 'helm');
  return spawnSync(program, args, { encoding: 'utf8' });
}

function render(settings: string): readonly Resource[] {
  const { status, stdout, stderr } = helm('template', 'test', CHART, '--set', settings);
  assert.equal(status, 0, stderr);
  return parseAllDocuments(stdout).map((document) => document.toJS());
}

async function runContainer({ spec }: Resource): Promise<void> {
  assert.equal(spec.replicas, 3);
  const { labels } = spec.template.metadata;
  assert.deepEqual({ ...labels, ...spec.selector.matchLabels }, labels);
  const [container] = spec.template.spec.containers;
  assert.deepEqual(container.command, ['node', MAIN]);
  assert.equal(container.envFrom[0]?.secretRef.name, 'sibyl');
  const given = Object.fromEntries(container.env.map(({ name, value }) => [name, value]));
  assert.equal(given.ORACLE_NAME, 'Pythia');
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-helm-'));
  // Only addresses differ, since it runs on this machine.
  const own = { HOST: '127.0.0.1', PORT: '0', METRICS_PORT: '', DATA_DIR: dataDir };
  const host = await startService([MAIN], { ...given, ...own });
  try {
    for (const probe of ['livenessProbe', 'readinessProbe', 'startupProbe'] as const) {
      const { path } = container[probe].httpGet;
      assert.equal((await fetch(`${host.url}${path}`)).status, 200, path);
    }
  } finally {
    await host.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

process.exitCode = await main();
