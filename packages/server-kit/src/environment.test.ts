import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import {
  ConfigError,
  isOperatorError,
  readEnvironment,
  readVariables,
  variable,
} from './environment.js';

const owner = {
  name: 'demo',
  remedy: 'Unset it for the default',
  schema: z.object({
    PORT: variable.port.prefault('3000').describe('Where to listen'),
    KEY: z.string().describe('The key'),
  }),
};

describe('readEnvironment', () => {
  it('counts an empty variable as unset', () => {
    expect(readEnvironment({ A: '1', B: '', C: '  ', D: undefined })).toEqual({ A: '1' });
  });
});

describe('readVariables', () => {
  it('returns the variables that the schema names and no others', () => {
    expect(readVariables({ KEY: 'k', OTHER: 'x' }, owner).values).toEqual({ PORT: 3000, KEY: 'k' });
  });

  it('reports every invalid or missing variable with what it means', () => {
    expect(readVariables({ PORT: '70000' }, owner).issues).toEqual([
      {
        subject: 'PORT (demo)',
        problem: 'must be a port, at most 65535',
        remedy: 'Where to listen. Unset it for the default',
      },
      {
        subject: 'KEY (demo)',
        problem: 'is not set',
        remedy: 'The key. Unset it for the default',
      },
    ]);
  });
});

describe('ConfigError', () => {
  it('lists every issue with its remedy', () => {
    const issue = { subject: 'PORT (host)', problem: 'is not set', remedy: 'Set it' };
    expect(new ConfigError('host', [issue]).message).toBe(
      'The host cannot start, one thing is wrong:\n  PORT (host): is not set\n      → Set it',
    );
    expect(new ConfigError('gateway', [issue, issue]).message).toMatch(
      /^The gateway cannot start, 2 things are wrong:\n/,
    );
  });
});

describe('isOperatorError', () => {
  it('is true for configuration and system errors only', () => {
    expect(isOperatorError(new ConfigError('host', []))).toBe(true);
    expect(isOperatorError(Object.assign(new Error('x'), { code: 'EADDRINUSE' }))).toBe(true);
    expect(isOperatorError(new Error('x'))).toBe(false);
    expect(isOperatorError(undefined)).toBe(false);
  });
});

describe('variable', () => {
  it.each([
    ['flag', 'true', true],
    ['wholeNumber', '0', 0],
    ['positive', '1', 1],
    ['seconds', '2000000', 2_000_000],
    ['port', '65535', 65_535],
    ['list', ' a, b ,,c', ['a', 'b', 'c']],
    ['size', '10', 10],
    ['size', '512KB', 512 * 1024],
    ['size', '2gb', 2 * 1024 ** 3],
    ['did', 'did:web:oracle.example', 'did:web:oracle.example'],
    ['origins', '*,https://chat.example', ['*', 'https://chat.example']],
    ['origins', 'https://chat.example/', ['https://chat.example']],
    ['httpUrl', 'https://chat.example/a', 'https://chat.example/a'],
    ['logLevel', 'info', 'info'],
  ] as const)('%s accepts %j', (kind, text, value) => {
    expect(variable[kind].parse(text)).toEqual(value);
  });

  it.each([
    ['flag', 'yes'],
    ['wholeNumber', '-1'],
    ['positive', '0'],
    ['seconds', '2000001'],
    ['port', '65536'],
    ['size', '1 mb'],
    ['did', 'oracle.example'],
    ['origins', 'https://chat.example/a'],
    ['httpUrl', 'ftp://chat.example'],
    ['logLevel', 'loud'],
  ] as const)('%s rejects %j', (kind, text) => {
    expect(variable[kind].safeParse(text).success).toBe(false);
  });
});
