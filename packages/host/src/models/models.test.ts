import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { ModelList } from '@sibyl/protocol';
import { expect, it } from 'vitest';
import { loadConfig } from '../config/config.js';
import { createModels } from './models.js';

function createConfigured(env: Record<string, string>) {
  return createModels(loadConfig(env).models);
}

it('createModels returns only the offline model by default', () => {
  const models = createConfigured({});
  expect(models.list()).toMatchObject({
    default: 'offline',
    models: [{ id: 'offline', isDefault: true, vision: false, tools: true }],
  });
  for (const role of ['main', 'subagent', 'utility'] as const)
    expect(models.get(role).id).toBe('offline');
});

it('createModels lists the available models and finds no others', () => {
  const models = createConfigured({ MODEL: 'openai/gpt-6-astra', OPENAI_API_KEY: 'k' });
  const list = ModelList.parse(models.list());
  expect(list.models.map(({ id, isDefault }) => [id, isDefault])).toEqual([
    ['openai/gpt-6-astra', true],
    ['openai/gpt-6-luna', false],
  ]);
  expect(models.get('utility').id).toBe('openai/gpt-6-luna');
  expect(models.find('openai/gpt-6-luna')).toBe(models.get('utility'));
  expect(models.find('offline')).toBeUndefined();
  expect(models.find('openai/gpt-4')).toBeUndefined();
});

it('createModels guesses from the name of a self-hosted model whether it accepts images', () => {
  const models = createConfigured({
    MODEL: 'openai-compatible/qwen2.5-vl:7b',
    MODEL_SMALL: 'openai-compatible/llama3.1:8b',
    MODEL_BASE_URL: 'http://127.0.0.1:1/v1',
  });
  expect(models.list().models.map(({ vision }) => vision)).toEqual([true, false]);
});

it('createModels loads no provider package before its first use', async () => {
  const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));
  const program = `
    import { registerHooks } from 'node:module';
    const seen = [];
    registerHooks({ resolve(name, context, next) {
      if (name.startsWith('@ai-sdk/')) seen.push(name);
      return next(name, context);
    } });
    const { createModels } = await import(${JSON.stringify(at('./models.ts'))});
    const { loadConfig } = await import(${JSON.stringify(at('../config/config.ts'))});
    createModels(loadConfig({ OPENAI_API_KEY: 'a', ANTHROPIC_API_KEY: 'b', GOOGLE_GENERATIVE_AI_API_KEY: 'c' }).models).list();
    console.log(JSON.stringify(seen));
  `;
  const hooks = at('../../test/support/source-hooks.ts');
  const args = ['--import', hooks, '--input-type=module', '-e', program];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  expect(JSON.parse(stdout)).toEqual([]);
});
