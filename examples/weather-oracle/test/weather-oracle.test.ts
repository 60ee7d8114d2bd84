import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { OracleApp } from '@sibyl/host';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openSession } from '../../../packages/host/test/support/stream.js';
import { TestUser } from '../../../packages/host/test/support/user.js';
import { createWeatherOracle } from '../src/oracle.js';

let service: Server;
let dataDir: string;
let app: OracleApp;
let url: string;

beforeAll(async () => {
  service = createServer((_, response) => {
    const now = { temp_C: '21', temp_F: '70', weatherDesc: [{ value: 'Sunny' }] };
    response.end(JSON.stringify({ current_condition: [now] }));
  });
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
  const { port } = service.address() as AddressInfo;
  dataDir = await mkdtemp(join(tmpdir(), 'weather-oracle-'));
  const env = {
    PORT: '0',
    DATA_DIR: dataDir,
    LOG_LEVEL: 'silent',
    WEATHER_URL: `http://127.0.0.1:${port}`,
    WEATHER_UNITS: 'imperial',
    OUTGOING_ALLOW: `127.0.0.1:${port}`,
  };
  app = await createWeatherOracle({ env });
  url = await app.listen();
});
afterAll(async () => {
  await app?.close();
  service?.close();
  await rm(dataDir, { recursive: true, force: true });
});

it('answers with the weather', async () => {
  const alice = new TestUser({ url, did: app.did });
  const sessionId = await openSession(alice);
  const { status, body } = await alice.request('POST', `/messages/${sessionId}`, {
    body: { message: 'use get_weather with place: Nairobi' },
  });
  expect(status).toBe(200);
  expect(body.message.content).toContain('70 °F');
  const { messages } = (await alice.request('GET', `/messages/${sessionId}`)).body;
  expect(messages.at(-1).toolCalls).toMatchObject([{ name: 'get_weather', status: 'done' }]);
});

it('has its plugin beside the bundled ones', async () => {
  expect(await (await fetch(`${url}/weather/source`)).json()).toMatchObject({ units: 'imperial' });
  const { plugins } = (await (await fetch(`${url}/plugins`)).json()) as {
    plugins: { name: string; title: string }[];
  };
  const titles = Object.fromEntries(plugins.map(({ name, title }) => [name, title]));
  expect(titles).toMatchObject({ weather: 'Weather', memory: 'What I know of you' });
  expect(app.plugins.status()).toContainEqual(
    expect.objectContaining({ name: 'slack', isLoaded: false, reason: 'switched off' }),
  );
});

it('names what is wrong before it starts', async () => {
  const wrong = createWeatherOracle({ env: { DATA_DIR: dataDir, WEATHER_UNITS: 'kelvin' } });
  await expect(wrong).rejects.toThrow(
    /WEATHER_UNITS \(plugin weather\): must be metric or imperial/,
  );
});
