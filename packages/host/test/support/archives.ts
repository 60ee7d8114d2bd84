import { createHash } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ImportJob } from '@sibyl/protocol';
import { generateSigner } from '@sibyl/ucan';
import { expect } from 'vitest';
import { ZipFile } from 'yazl';
import { MANIFEST, SIGNATURE, signManifest } from '../../src/own-data/archive-format.js';
import type { TestUser } from './user.js';

/** A zip archive of files by their paths. */
export function zip(files: ReadonlyMap<string, Buffer | string>): Promise<Buffer> {
  const archive = new ZipFile();
  for (const [path, data] of files) archive.addBuffer(Buffer.from(data as string), path);
  archive.end();
  return buffer(archive.outputStream);
}

/** An archive of these lines by table and of other files, with a manifest that fits; `more` is added to the manifest. */
export function createArchive(
  tables: Readonly<Record<string, readonly string[]>>,
  more: object = {},
  others: ReadonlyMap<string, Buffer> = new Map(),
): Promise<Buffer> {
  const files = new Map(others);
  for (const [table, lines] of Object.entries(tables))
    files.set(`tables/${table}/000001.jsonl`, Buffer.from(lines.join('\n')));
  const manifest = Buffer.from(
    JSON.stringify({
      format: 'sibyl-export',
      version: 1,
      owner: 'did:key:zSomebody',
      oracle: { did: 'did:key:zOther', name: 'Other' },
      createdAt: new Date().toISOString(),
      files: [...files].map(([path, data]) => ({
        path,
        bytes: data.length,
        sha256: createHash('sha256').update(data).digest('hex'),
      })),
      omitted: [],
      ...more,
    }),
  );
  files.set(MANIFEST, manifest);
  files.set(SIGNATURE, signManifest(generateSigner(), manifest));
  return zip(files);
}

export async function sendArchive(
  user: TestUser,
  archive: Buffer | string,
  type = 'application/zip',
) {
  const response = await fetch(`${user.host.url}/me/import`, {
    method: 'POST',
    headers: { ...user.headers, 'content-type': type },
    body: archive as string,
  });
  return { status: response.status, body: (await response.json()) as ImportJob & { code: string } };
}

/** Imports an archive, and returns the job when it has ended. */
export async function importArchive(
  user: TestUser,
  archive: Buffer | string,
  type?: string,
): Promise<ImportJob> {
  const { status, body } = await sendArchive(user, archive, type);
  expect(status, JSON.stringify(body)).toBe(200);
  for (;;) {
    const { body: job } = await user.request('GET', `/me/import/${body.id}`);
    if (job.status !== 'running') return job as ImportJob;
    await sleep(20);
  }
}
