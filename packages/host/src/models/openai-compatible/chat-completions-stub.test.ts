import { expect, it } from 'vitest';
import { startChatCompletionsStub } from '../../../test/support/model-servers/chat-completions-stub.ts';
import {
  collect,
  listCalls,
  toModelCall,
} from '../../../test/support/model-servers/scripted-provider.ts';
import { loadConfig } from '../../config/config.js';
import { createModels } from '../models.js';

it.each([0, 1])(
  'the stub of the benchmarks calls a tool, then says its tokens %i ms apart',
  async (gapMs) => {
    const toolCall = { name: 'now', input: '{"zone":"UTC"}' };
    const stub = await startChatCompletionsStub({ tokens: 20, gapMs, toolCall });
    const { models } = loadConfig({ MODEL: 'openai-compatible/stub', MODEL_BASE_URL: stub.url });
    const model = createModels(models).get('main');
    const asked = await collect(model);
    const [call] = listCalls(asked.parts);
    expect(call).toMatchObject(toolCall);
    const results = [{ id: call?.id ?? '', name: 'now', output: 'noon', isError: false }];
    const { text, parts } = await collect(
      model,
      toModelCall({ messages: [{ role: 'tool', results }] }),
    );
    expect(text).toBe('word '.repeat(20));
    expect(parts.at(-1)).toMatchObject({ reason: 'stop', usage: { output: 20 } });
    expect(stub.requestCount()).toBe(2);
    await stub.close();
  },
);
