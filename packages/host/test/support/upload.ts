import { setTimeout as sleep } from 'node:timers/promises';
import type { FileInfo } from '@sibyl/protocol';
import { expect } from 'vitest';
import type { TestUser } from './user.js';

type Body = string | Uint8Array | ReadableStream<Uint8Array> | FormData;

/** Sends a file; any status. */
export async function postFile(user: TestUser, name: string | undefined, body: Body) {
  const query = name === undefined ? '' : `?name=${encodeURIComponent(name)}`;
  const response = await fetch(`${user.host.url}/files${query}`, {
    method: 'POST',
    headers: user.headers,
    body: body as BodyInit,
    // Streams need it.
    ...({ duplex: 'half' } as object),
  });
  return {
    status: response.status,
    headers: response.headers,
    // biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
    body: (await response.json()) as any,
  };
}

export async function upload(user: TestUser, name: string, body: Body): Promise<FileInfo> {
  const reply = await postFile(user, name, body);
  expect(reply).toMatchObject({ status: 200 });
  return reply.body;
}

/** Waits until the text of a file was read, or could not be. */
export async function waitForText(user: TestUser, { fileId }: Pick<FileInfo, 'fileId'>) {
  for (let tries = 0; tries < 1000; tries += 1) {
    const { body } = await user.request('GET', `/files/${fileId}/info`);
    if (body.text.status !== 'pending') return body.text as FileInfo['text'];
    await sleep(100);
  }
  throw new Error(`The text of ${fileId} is still pending`);
}

/** Uploads a file and waits for its text. */
export async function uploadText(user: TestUser, name: string, body: Body) {
  const file = await upload(user, name, body);
  return { ...file, text: await waitForText(user, file) };
}
