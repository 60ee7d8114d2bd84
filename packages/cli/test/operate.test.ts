import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { sibyl, useFolder } from './support/sibyl.js';

const DATA_DIR = join(useFolder(), 'data');

describe('sibyl doctor', () => {
  it('finds nothing wrong with the defaults', async () => {
    const { code, stdout } = await sibyl(['doctor', '--json'], { env: { DATA_DIR } });
    expect(code).toBe(0);
    const { checks } = JSON.parse(stdout);
    expect(checks.map(({ name, state }: { name: string; state: string }) => [name, state])).toEqual(
      [
        ['configuration', 'ok'],
        ['store', 'ok'],
        ['model', 'off'],
        ['Matrix', 'off'],
        ['chain', 'off'],
        ['gateway', 'off'],
      ],
    );
  });

  it('names variables that are wrong, those of plugins too', async () => {
    const env = { DATA_DIR, PORT: 'many', MCP_SERVERS: '{' };
    const { code, stdout } = await sibyl(['doctor'], { env });
    expect(code).toBe(1);
    expect(stdout).toMatch(/✗ configuration.*PORT.*MCP_SERVERS/s);
  });

  it('says what does not work and what to do', async () => {
    const env = {
      DATA_DIR,
      DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none',
      MODEL: 'openai-compatible/none',
      MODEL_BASE_URL: 'http://127.0.0.1:1',
      MATRIX_BASE_URL: 'http://127.0.0.1:1',
      GATEWAY_URL: 'http://127.0.0.1:1',
    };
    const { code, stdout } = await sibyl(['doctor'], { env });
    expect(code).toBe(1);
    for (const part of ['store', 'model', 'Matrix', 'gateway'])
      expect(stdout).toContain(`✗ ${part}`);
    expect(stdout).toContain('Check DATABASE_URL');
    expect(stdout).toContain('sibyl gateway');
  });
});

describe('sibyl plugins', () => {
  it('lists them, with the reason where one is not loaded', async () => {
    const { stdout } = await sibyl(['plugins'], { env: { FEATURES: 'memory=false' } });
    expect(stdout).toMatch(/user-preferences +\S+ +loaded/);
    expect(stdout).toMatch(/memory +\S+ +not loaded/);
    expect(stdout).toMatch(/mcp +\S+ +not loaded +set MCP_SERVERS/);
  });

  it('says what is wrong with the configuration', async () => {
    const { code, stderr } = await sibyl(['plugins'], { env: { PORT: 'many' } });
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('PORT') });
  });
});

describe('sibyl credits', () => {
  const did = 'did:key:z6MkpPcjwo4wP49VnvG7isXnqvFJyEqZ5JxSjohHxTT9Zr1c';

  it('grants credit in the store of the oracle', async () => {
    const first = await sibyl(['credits', 'grant', did, '100'], { env: { DATA_DIR } });
    expect(first.stdout).toContain('the balance is 100');
    const again = await sibyl(['credits', 'grant', did, '50', '--json'], { env: { DATA_DIR } });
    expect(JSON.parse(again.stdout)).toMatchObject({ balance: 150 });
  });

  it('says what keeps it from the store, without a stack', async () => {
    const env = { DATA_DIR, DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' };
    const { code, stderr } = await sibyl(['credits', 'grant', did, '100'], { env });
    expect(code).toBe(1);
    expect(stderr).toContain('127.0.0.1:1');
    expect(stderr).not.toMatch(/^\s+at /m);
  });
});
