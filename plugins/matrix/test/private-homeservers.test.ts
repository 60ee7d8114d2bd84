import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer, type Server } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { startHost, type TestHost } from '../../../packages/host/test/support/host.js';
import { openSession, stream } from '../../../packages/host/test/support/stream.js';
import { TestUser } from '../../../packages/host/test/support/user.js';

let model: ControlledModel;
let host: TestHost;
let alice: TestUser;
let inside: Server;
let connections = 0;

beforeAll(async () => {
  inside = createServer((socket) => {
    connections += 1;
    socket.destroy();
  });
  inside.listen(0, '127.0.0.1');
  await once(inside, 'listening');
  model = await startControlledModel();
  host = await startHost({ env: { ...model.env } });
  alice = new TestUser(host);
});

afterAll(async () => {
  await host?.close();
  model?.close();
  inside?.close();
});

const attachments = [{ mxcUri: 'mxc://a/b', filename: 'a.txt', mimetype: 'text/plain' }];

/** The warnings and the prompt for a file at this homeserver. */
async function readFrom(homeServer: string) {
  const body = { message: 'Read it', attachments, homeServer };
  const reply = await stream(alice, await openSession(alice), body);
  const asked = await model.next();
  asked.answer('ok');
  const frames = await reply.toEnd();
  const warnings = frames.filter(({ event }) => event === 'warning');
  return { messages: warnings.map(({ data }) => data.message), prompt: JSON.stringify(asked.body) };
}

describe('FileReader: a homeserver inside of the network', () => {
  it.each([
    'http://127.0.0.1:PORT',
    'https://127.0.0.1:PORT',
    '127.0.0.1:PORT',
    'https://localhost:PORT',
    'https://LOCALHOST.:PORT',
    'https://127.1:PORT',
    'https://2130706433:PORT',
    'https://0x7f000001:PORT',
    'https://0177.0.0.1:PORT',
    'https://0:PORT',
    'https://[::1]:PORT',
    'https://[::ffff:127.0.0.1]:PORT',
    'https://[::ffff:7f00:1]:PORT',
    'https://[64:ff9b::7f00:1]:PORT',
    'https://10.0.0.1',
    'https://192.168.0.1',
    'https://172.16.0.1',
    'https://100.64.0.1',
    'https://169.254.169.254',
    'https://[fd00:ec2::254]',
    'https://[fe80::1]',
  ])('is not requested and not named: %s', async (address) => {
    const { port } = inside.address() as AddressInfo;
    const { messages, prompt } = await readFrom(address.replace('PORT', String(port)));
    expect(messages).toEqual(['a.txt: the homeserver cannot be reached']);
    expect(prompt).not.toContain('public internet');
    expect(connections).toBe(0);
  });

  it.each(['file:///etc/passwd', 'gopher://127.0.0.1', '//127.0.0.1', 'a b', '@', 'https://'])(
    'is none: %s',
    async (address) => {
      expect((await readFrom(address)).messages).toHaveLength(1);
      expect(connections).toBe(0);
    },
  );
});
