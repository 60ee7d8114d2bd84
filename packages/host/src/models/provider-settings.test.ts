import { afterEach, describe, expect, it } from 'vitest';
import {
  collect,
  hello,
  openProviderWith,
  type Provider,
  providers,
  toModelCall,
} from '../../test/support/model-servers/scripted-provider.ts';
import type { ModelCall, ModelTool } from './model.js';

let close: (() => Promise<void>) | undefined;
afterEach(() => close?.());

/** The body that a provider receives for a call. */
async function send(provider: Provider, settings: object, call: Partial<ModelCall> = {}) {
  const { model, server } = await openProviderWith(settings, provider, hello);
  close = () => server.close();
  const { fault, parts } = await collect(model, toModelCall(call));
  expect(fault).toBeUndefined();
  return { body: server.requests[0]?.body, parts };
}

describe.each(providers)('createProviderModel for %s', (provider) => {
  it('asks for the effort of reasoning that a call or the settings name', async () => {
    const high = await send(provider, {}, { reasoning: 'high' });
    expect(high.body).toMatchObject(efforts[provider]);
    const set = await send(provider, { reasoning: 'high' });
    expect(set.body).toMatchObject(efforts[provider]);
    const omitted = await send(provider, { reasoning: 'high' }, { reasoning: 'omit' });
    expect(JSON.stringify(omitted.body)).not.toMatch(/effort|thinkingConfig|adaptive/);
    const never = await send(provider, { reasoning: false }, { reasoning: 'high' });
    expect(JSON.stringify(never.body)).not.toMatch(/effort|thinkingConfig|adaptive/);
  });

  it('sends the schema of the answer', async () => {
    const responseSchema = {
      type: 'object',
      properties: { capital: { type: 'string' } },
      required: ['capital'],
      additionalProperties: false,
    };
    const { body } = await send(provider, {}, { tools: [], responseSchema });
    expect(JSON.stringify(body)).toContain('capital');
    const unforced = await send(
      provider,
      { structuredOutput: false },
      { tools: [], responseSchema },
    );
    expect(JSON.stringify(unforced.body)).not.toContain('capital');
  });

  it('sends which tool the model has to call', async () => {
    const [{ name: tool }] = toModelCall().tools as [ModelTool];
    const { required, named } = choices[provider](tool);
    const any = await send(provider, {}, { toolChoice: 'required' });
    expect(any.body).toMatchObject(required);
    const one = await send(provider, {}, { toolChoice: { tool } });
    expect(one.body).toMatchObject(named);
    const free = JSON.stringify((await send(provider, {})).body);
    expect(free).not.toMatch(/required|functionCallingConfig|"any"/);
  });

  it('sends the output limit and the sampling of the settings', async () => {
    const settings = { reasoning: false, outputTokens: 321, sampling: { topP: 0.25 } };
    const text = JSON.stringify((await send(provider, settings)).body);
    expect(text).toContain('321');
    // Some models accept no sampling.
    if (provider !== 'openai' && provider !== 'anthropic') expect(text).toContain('0.25');
  });

  it('computes the cost of a call from the prices of the settings', async () => {
    const prices = { input: 10, output: 100, cachedInput: 1 };
    const { parts } = await send(provider, { prices });
    expect(parts.at(-1)).toMatchObject({ usage: { input: 100, output: 20, cached: 40 } });
    const finish = parts.at(-1);
    expect(finish?.type === 'finish' && finish.usage.cost).toBeCloseTo(0.00264);
  });
});

const choices: Record<Provider, (name: string) => { required: object; named: object }> = {
  openai: (name) => ({
    required: { tool_choice: 'required' },
    named: { tool_choice: { type: 'function', name } },
  }),
  // This model cannot be forced: it can only be left with the one tool.
  anthropic: (name) => ({
    required: { tool_choice: { type: 'auto' } },
    named: { tool_choice: { type: 'auto' }, tools: [{ name }] },
  }),
  google: (name) => ({
    required: { toolConfig: { functionCallingConfig: { mode: 'ANY' } } },
    named: { toolConfig: { functionCallingConfig: { mode: 'ANY', allowedFunctionNames: [name] } } },
  }),
  'openai-compatible': (name) => ({
    required: { tool_choice: 'required' },
    named: { tool_choice: { type: 'function', function: { name } } },
  }),
};

const efforts: Record<Provider, object> = {
  openai: { reasoning: { effort: 'high', summary: 'auto' } },
  anthropic: {
    thinking: { type: 'adaptive', display: 'summarized' },
    output_config: { effort: 'high' },
  },
  google: {
    generationConfig: { thinkingConfig: { includeThoughts: true, thinkingLevel: 'high' } },
  },
  'openai-compatible': { reasoning_effort: 'high' },
};
