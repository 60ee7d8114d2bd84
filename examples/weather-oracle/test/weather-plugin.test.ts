import { contractTests, createTestRuntime, type TestRuntime } from '@sibyl/plugin-kit/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { weather } from '../src/weather-plugin.js';

const asked: string[] = [];

/** Stands in for the weather service. */
const fetch = async (url: string | URL): Promise<Response> => {
  asked.push(String(url));
  if (String(url).includes('Atlantis')) return new Response('', { status: 404 });
  const now = { temp_C: '21', temp_F: '70', weatherDesc: [{ value: 'Sunny' }] };
  return Response.json({ current_condition: [now] });
};

let runtime: TestRuntime;
beforeEach(async () => {
  asked.length = 0;
  runtime = await createTestRuntime({ plugins: [weather], fetch });
});
afterEach(() => runtime.close());

it('tells the weather', async () => {
  const turn = await runtime.turn();
  expect(await turn.callTool('get_weather', { place: 'Nairobi' })).toEqual({
    place: 'Nairobi',
    sky: 'Sunny',
    temperature: '21 °C',
  });
  expect(asked).toEqual(['https://wttr.in/Nairobi?format=j1']);
});

it('asks once for what it was told a moment ago', async () => {
  const turn = await runtime.turn();
  await turn.callTool('get_weather', { place: 'Nairobi' });
  await turn.callTool('get_weather', { place: 'nairobi' });
  expect(asked).toHaveLength(1);
});

it('says when there is no weather', async () => {
  const turn = await runtime.turn();
  await expect(turn.callTool('get_weather', { place: 'Atlantis' })).rejects.toThrow(/no weather/);
});

it('tells everybody where the weather comes from', async () => {
  expect(await runtime.request('GET', '/weather/source')).toMatchObject({
    status: 200,
    body: { service: 'https://wttr.in', units: 'metric' },
  });
});

describe('the contract of plugins', () => {
  it.each(contractTests(weather, { fetch }))('$name', ({ run }) => run());
});
