import { createHash, createPublicKey, verify } from 'node:crypto';
import type { AnyTable, SelectedRow } from '@sibyl/plugin-kit/tables';
import { Id, type Result } from '@sibyl/protocol';
import { publicKeyFromDid, type Signer } from '@sibyl/ucan';
import { z } from 'zod';
import type { StoredRow } from '../store/own-data/owner-rows.js';
import { SOURCES_STATE, STATE_MAX_LENGTH } from '../store/plugin-stores.js';
import { branches } from '../store/schema/branches.js';
import { feedback } from '../store/schema/feedback.js';
import { MAX_TEXT, Time } from '../store/schema/imported-values.js';
import { messages } from '../store/schema/messages.js';
import { roomState } from '../store/schema/rooms.js';
import { sessions } from '../store/schema/sessions.js';
import { parseJson } from './archive-reader.js';

/** The layout of an export. */
export const MANIFEST = 'manifest.json';
export const SIGNATURE = 'manifest.sig.json';
export const README = 'README.txt';

const digits = (part: number) => String(part).padStart(6, '0');

/** The rows of a table, one JSON object per line; large tables have several parts. */
export const toPartPath = (table: string, part: number): string =>
  `tables/${table}/${digits(part)}.jsonl`;

/** The file of a binary column. Rows name it instead of its bytes. */
export function toFilePath(table: string, column: string, key: StoredRow): string {
  const hash = createHash('sha256')
    .update(JSON.stringify(Object.values(key)))
    .digest('hex');
  return `files/${table}/${column}/${hash.slice(0, 32)}`;
}

/** A file that the user uploaded; the name is only for readers. */
export const toUploadPath = (id: string, name: string): string =>
  `uploads/${id}/${name.replaceAll(/[\\/:\p{Cc}]/gu, '_')}`;

/** The id and name in the path of an uploaded file. */
export function parseUploadPath(path: string): { id: string; name: string } | undefined {
  const [, id, name] = /^uploads\/([A-Za-z0-9-]{1,64})\/([^/]+)$/.exec(path) ?? [];
  return id === undefined || name === undefined ? undefined : { id, name };
}

/** The last but one entry of an export: what it contains. */
export const Manifest = z.object({
  format: z.literal('sibyl-export'),
  version: z.literal(1),
  /** The user. */
  owner: z.string(),
  oracle: z.object({ did: z.string(), name: z.string() }),
  createdAt: z.iso.datetime(),
  files: z.array(z.object({ path: z.string(), bytes: z.int(), sha256: z.string() })),
  /** What an export does not contain. */
  omitted: z.array(z.object({ table: z.string(), column: z.string(), reason: z.string() })),
});
export type Manifest = z.infer<typeof Manifest>;
export type ManifestFile = Manifest['files'][number];

/** The parts of each table, in order. */
export function listParts(
  { files }: Pick<Manifest, 'files'>,
  tables: readonly string[],
): ReadonlyMap<string, Manifest['files']> {
  // Once for all tables: an archive may have very many files.
  const byPath = new Map(files.map((file) => [file.path, file]));
  const list = (table: string) => {
    const parts: Manifest['files'] = [];
    for (let part = 1; ; part++) {
      const file = byPath.get(toPartPath(table, part));
      if (!file) return parts;
      parts.push(file);
    }
  };
  return new Map(tables.map((table) => [table, list(table)]));
}

/** The last entry: who signed the bytes of the manifest. */
const ManifestSignature = z.object({
  /** The did:key of the oracle's key. */
  key: z.string(),
  /** Ed25519, base64. */
  signature: z.string(),
});

export function signManifest(signer: Signer, manifest: Buffer): Buffer {
  const signature = Buffer.from(signer.sign(manifest)).toString('base64');
  return Buffer.from(JSON.stringify({ key: signer.keyDid, signature }, null, 2));
}

/** Returns the manifest if the signature fits, with the did:key that signed it. */
export function verifyManifest(
  manifest: Buffer,
  signature: Buffer,
): Result<{ readonly manifest: Manifest; readonly key: string }, string> {
  const signed = parse(ManifestSignature, signature);
  if (!signed) return { error: `${SIGNATURE} cannot be read` };
  const publicKey = publicKeyFromDid(signed.key);
  if (publicKey.error || !isSigned(manifest, signed.signature, publicKey.ok))
    return { error: `The signature of ${MANIFEST} is wrong: the archive was changed` };
  const known = parse(Manifest, manifest);
  if (!known) return { error: `${MANIFEST} has an unknown format` };
  return { ok: { manifest: known, key: signed.key } };
}

/** Five for each file, and an archive has at most 200,000. */
const MAX_VALUES = 1_000_100;

const parse = <Schema extends z.ZodType>(schema: Schema, bytes: Buffer) =>
  schema.safeParse(parseJson(bytes.toString('utf8'), { values: MAX_VALUES })).data;

function isSigned(bytes: Buffer, signature: string, publicKey: Uint8Array): boolean {
  const x = Buffer.from(publicKey).toString('base64url');
  const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
  return verify(null, bytes, key, Buffer.from(signature, 'base64'));
}

// The rows that are imported.

/** Values in the parts of a message, or in its other JSON. */
const MAX_JSON_VALUES = 100_000;

/** JSON as text; null if it is missing or invalid. */
const json = (schema: z.ZodType) =>
  z
    .string()
    .max(MAX_TEXT)
    .refine((text) => schema.safeParse(parseJson(text, { values: MAX_JSON_VALUES })).success)
    .nullable()
    .catch(null);

/** What the definition of a table accepts of an archive: other columns are left out. */
function importedRow<T extends AnyTable>({ columns }: T) {
  const shape: Record<string, z.ZodType> = {};
  for (const [name, { options }] of Object.entries(columns)) {
    const { imported, codec, isOptional } = options;
    if (!imported) continue;
    if (codec === 'json') shape[name] = json(imported);
    else shape[name] = isOptional ? toOptional(imported) : imported;
  }
  return z.object(shape) as unknown as z.ZodType<SelectedRow<T>>;
}

/** Null in place of what is missing or invalid, unless the schema itself says when it is null. */
const toOptional = (schema: z.ZodType): z.ZodType =>
  schema.safeParse(null).success ? schema : schema.nullable().catch(null);

export const SessionRow = importedRow(sessions);

export const MessageRow = importedRow(messages);

export const BranchRow = importedRow(branches)
  // Otherwise a path would lead back to itself.
  .refine(({ branch, base_branch }) => base_branch === null || base_branch < branch);

export const FeedbackRow = importedRow(feedback);

/** What else is stored for a session belongs to plugins of the other oracle. */
export const SourcesRow = z.looseObject({
  session_id: Id,
  plugin: z.literal(SOURCES_STATE.plugin),
  key: z.literal(SOURCES_STATE.key),
  value: json(z.record(z.string(), z.unknown())).pipe(z.string().max(STATE_MAX_LENGTH)),
});

export const FileRow = z.object({
  id: z.string().max(64),
  name: z.string().max(1000).optional().catch(undefined),
  created_at: Time.optional().catch(undefined),
});
export type FileRow = z.infer<typeof FileRow>;

export const RoomStateRow = importedRow(roomState);
