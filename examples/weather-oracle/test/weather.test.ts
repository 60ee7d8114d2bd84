import { contractTests, createTestRuntime, type TestRuntime } from '@sibyl/plugin-kit/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { weather } from '../src/weather.js';

const requested: string[] = [];

const fetch = async (url: string | URL): Promise<Response> => {
  requested.push(String(url));
  if (String(url).includes('Atlantis')) return new Response('', { status: 404 });
  const now = { temp_C: '21', temp_F: '70', weatherDesc: [{ value: 'Sunny' }] };
  return Response.json({ current_condition: [now] });
};

let runtime: TestRuntime;
beforeEach(async () => {
  requested.length = 0;
  runtime = await createTestRuntime({ plugins: [weather], fetch });
});
afterEach(() => runtime.close());

it('get_weather returns the weather, and requests it once', async () => {
  const turn = await runtime.turn();
  const nairobi = { place: 'Nairobi', sky: 'Sunny', temperature: '21 °C' };
  expect(await turn.callTool('get_weather', { place: 'Nairobi' })).toEqual(nairobi);
  expect(await turn.callTool('get_weather', { place: 'nairobi' })).toEqual(nairobi);
  expect(requested).toEqual(['https://wttr.in/Nairobi?format=j1']);
  await expect(turn.callTool('get_weather', { place: 'Atlantis' })).rejects.toThrow(/no weather/);
});

it('GET /weather/source is public', async () => {
  const { status, body } = await runtime.request('GET', '/weather/source');
  expect([status, body]).toEqual([200, { service: 'https://wttr.in', units: 'metric' }]);
});

describe('the plugin contract', () => {
  it.each(contractTests(weather, { fetch }))('$name', ({ run }) => run());
});
